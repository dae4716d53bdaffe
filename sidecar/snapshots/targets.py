"""The partitions that a path on the command line means."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from sidecar.clock import Clock
from sidecar.config.topic_filter import TopicFilter
from sidecar.discovery.partition_directory import read_partition_directory
from sidecar.discovery.scan import ScanProblem, scan_log_dirs
from sidecar.errors import PartitionError, SettingsError
from sidecar.logformat.names import META_PROPERTIES, DirectoryState, Suffix, parse_directory_name, parse_file_name
from sidecar.model import PartitionFiles
from sidecar.reporting.advice import advised
from sidecar.snapshots.archived_partition import archived_partitions
from sidecar.snapshots.disk_partition import DiskPartition
from sidecar.snapshots.tasks import PartitionLog
from sidecar.store_settings import StoreSettings

NO_TOPIC: Final = TopicFilter(include=())


@dataclass(frozen=True, slots=True)
class Targets:
    """Partitions in ascending order, and what could not be listed. `warnings` change no exit code.

    `single`: one partition directory was named, and nothing else. `directories`: those of a broker, which are only read.
    """

    partitions: tuple[PartitionLog, ...]
    problems: tuple[str, ...]
    single: bool = False
    directories: tuple[Path, ...] = ()
    warnings: tuple[str, ...] = ()


def find_targets(
    paths: Sequence[Path],
    topics: TopicFilter,
    *,
    compacted_elsewhere: TopicFilter = NO_TOPIC,
) -> Targets:
    """Each path is a partition directory, or a log dir with such directories in it, of which internal topics are passed over.

    Raises SettingsError for a path that is neither.
    """
    partitions: list[PartitionFiles] = []
    problems: list[str] = []
    log_dirs: list[Path] = []
    for path in paths:
        try:
            if not path.is_dir():
                raise SettingsError(f"{path}: no such directory; correct the path")
            is_partition = holds_segments(path)
        except OSError as error:
            raise SettingsError(
                f"{path}: cannot be read: {error.strerror or error}; run as the broker's user"
            ) from error
        if not is_partition:
            log_dirs.append(path)
            continue
        try:
            partitions.append(_named_partition(path))
        except PartitionError as error:
            problems.append(advised(error))
    found = scan_log_dirs(log_dirs, topics)
    partitions += found.partitions
    problems += [advised(problem.error) for problem in found.problems]
    problems += misnamed_directories(log_dirs)
    if not partitions and not problems:
        selected = " whose topic is selected" if topics != TopicFilter() else ""
        raise SettingsError(
            f"{', '.join(map(str, paths))}: not a partition directory, and contains none{selected} (internal topics are "
            "skipped)"
        )
    ascending = sorted(partitions, key=lambda files: files.topic_partition)
    return Targets(
        tuple(disk_partition(files, compacted_elsewhere) for files in ascending),
        tuple(problems),
        single=len(paths) == 1 and not log_dirs,
        directories=tuple(path if path in log_dirs else _brokers_directory(path) for path in paths),
        warnings=unmatched_patterns(topics, compacted_elsewhere, topics_of(partitions, found.problems)),
    )


def disk_partition(files: PartitionFiles, compacted_elsewhere: TopicFilter) -> DiskPartition:
    """One partition, and what was said of its topic."""
    return DiskPartition(files, compacted_elsewhere.accepts(files.topic_partition.topic))


def archive_targets(settings: StoreSettings, clock: Clock, topics: TopicFilter) -> Targets:
    """The partitions of an archive. Raises StoreError."""
    found, problems = archived_partitions(settings, clock, replace(topics, internal=True).accepts)
    seen = {log.topic_partition.topic for log in found}
    return Targets(tuple(found), tuple(problems), warnings=unmatched_patterns(topics, NO_TOPIC, seen))


def unmatched_patterns(topics: TopicFilter, compacted_elsewhere: TopicFilter, seen: Collection[str]) -> tuple[str, ...]:
    """What to tell of each pattern that fits none of the topics seen: it may be mistyped, or be about another broker."""
    asked = () if topics.include == TopicFilter().include else topics.include
    given = (
        *(("--topic", pattern) for pattern in asked),
        *(("--compacted", pattern) for pattern in compacted_elsewhere.include),
    )
    return tuple(
        f"{option} {pattern}: matches no topic (it must match the whole name; internal topics are skipped)"
        for option, pattern in given
        if not any(re.fullmatch(pattern, topic) for topic in seen)
    )


def topics_of(partitions: Sequence[PartitionFiles], problems: Sequence[ScanProblem]) -> set[str]:
    """Topics of which a partition was found, readable or not."""
    named = (problem.topic_partition for problem in problems if problem.topic_partition is not None)
    return {each.topic for each in (*(files.topic_partition for files in partitions), *named)}


def misnamed_directories(log_dirs: Sequence[Path]) -> list[str]:
    """Warnings about directories that hold segments under a name that is no partition's: they are not read."""
    found: list[str] = []
    for log_dir in log_dirs:
        with suppress(OSError):  # The scan reports a log dir that cannot be listed.
            found += [
                f"{path}: holds segments, but its name is not that of a partition directory (expected "
                "<topic>-<number>). It was skipped, and a broker does not start with it. Rename it, or move it "
                "away"
                for path in sorted(log_dir.iterdir())
                if parse_directory_name(path.name) is None and path.is_dir() and holds_segments(path)
            ]
    return found


def holds_segments(path: Path) -> bool:
    """Whether `.log` files lie directly in it. Raises OSError."""
    names = (parse_file_name(entry.name) for entry in path.iterdir())
    return any(name is not None and name.suffix is Suffix.LOG for name in names)


def _brokers_directory(partition_directory: Path) -> Path:
    """The log dir around it, if it is one and not just any directory with a copy in it."""
    parent = partition_directory.absolute().parent
    return parent if (parent / META_PROPERTIES).exists() else partition_directory


def _named_partition(path: Path) -> PartitionFiles:
    path = path.absolute()
    name = parse_directory_name(path.name)
    if name is None or name.state is not DirectoryState.LIVE:
        raise SettingsError(
            f"{path}: holds segments, but its name is not that of a partition directory (expected "
            "<topic>-<number>): give the copy the broker's name"
        )
    return read_partition_directory(name.topic_partition, path.parent, path)
