"""The partitions that a path on the command line means."""

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Generic, TypeAlias, TypeVar

from sidecar.clock import Clock
from sidecar.commits.commit_log import CommitLog
from sidecar.commits.lineages import find_all_lineages
from sidecar.config.topic_filter import TopicFilter, unmatched
from sidecar.discovery.partition_directory import named_partition
from sidecar.discovery.scan import ScanProblem, scan_log_dirs
from sidecar.errors import PartitionError, SettingsError
from sidecar.host import process_store
from sidecar.logformat.names import STAGING_SUFFIX, Suffix, parse_directory_name, parse_file_name
from sidecar.model import PartitionFiles, TopicPartition
from sidecar.reporting.advice import advised
from sidecar.snapshots.archived_partition import ArchivedPartition
from sidecar.snapshots.disk_partition import DiskPartition
from sidecar.store_settings import StoreSettings

NO_TOPIC: Final = TopicFilter(include=())
PartitionLog: TypeAlias = DiskPartition | ArchivedPartition
"""A partition's segments and snapshots, wherever they lie."""
LogT = TypeVar("LogT", bound=PartitionLog, covariant=True)


@dataclass(frozen=True, slots=True)
class Targets(Generic[LogT]):
    """Partitions in ascending order, and what could not be listed. `warnings` change no exit code.

    `single`: one partition directory was named, and nothing else. `directories`: the named ones, which are only read.
    `unread`: of each log of an archive whose commits cannot be read.
    """

    partitions: tuple[LogT, ...]
    problems: tuple[str, ...]
    single: bool = False
    directories: tuple[Path, ...] = ()
    warnings: tuple[str, ...] = ()
    unread: tuple[TopicPartition, ...] = ()


def find_targets(
    paths: Sequence[Path],
    topics: TopicFilter,
    *,
    compacted_elsewhere: TopicFilter = NO_TOPIC,
) -> Targets[DiskPartition]:
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
            partitions.append(named_partition(path))
        except PartitionError as error:
            problems.append(advised(error))
    targets = log_dir_targets(log_dirs, topics, compacted_elsewhere, partitions, problems)
    if not targets.partitions and not targets.problems:
        selected = " whose topic is selected" if topics != TopicFilter() else ""
        raise SettingsError(
            f"{', '.join(map(str, paths))}: not a partition directory, and contains none{selected} (internal topics are "
            "skipped)"
        )
    return replace(targets, single=len(paths) == 1 and not log_dirs, directories=tuple(paths))


def log_dir_targets(
    log_dirs: Sequence[Path],
    topics: TopicFilter,
    compacted_elsewhere: TopicFilter,
    others: Sequence[PartitionFiles] = (),
    problems: Sequence[str] = (),
) -> Targets[DiskPartition]:
    """The partitions of log dirs, and others that were listed already; with the problems of that, those of the log dirs.

    Each directory and each problem once: a partition directory may be named with its log dir, or twice.
    """
    found = scan_log_dirs(log_dirs, topics)
    by_directory = {(files.topic_partition, files.directory_id): files for files in (*others, *found.partitions)}
    partitions = sorted(by_directory.values(), key=lambda files: files.topic_partition)
    noted = (*problems, *(advised(problem.error) for problem in found.problems), *_misnamed_directories(log_dirs))
    return Targets(
        tuple(DiskPartition(files, compacted_elsewhere.accepts(files.topic_partition.topic)) for files in partitions),
        tuple(dict.fromkeys(noted)),
        warnings=_unmatched_patterns(topics, compacted_elsewhere, _topics_of(partitions, found.problems)),
    )


def archive_targets(settings: StoreSettings, clock: Clock, topics: TopicFilter) -> Targets[ArchivedPartition]:
    """The partitions of an archive. Raises StoreError."""
    store = process_store.store_of(settings)
    found: list[ArchivedPartition] = []
    problems: list[str] = []
    unread: list[TopicPartition] = []
    for lineage in find_all_lineages(store, replace(topics, internal=True).accepts):
        try:
            found += ArchivedPartition.stretches(settings, CommitLog(store, lineage.root, clock).read())
        except PartitionError as error:
            problems.append(str(error))
            unread.append(lineage.topic_partition)
    return Targets(tuple(found), tuple(problems), unread=tuple(unread))


def _unmatched_patterns(
    topics: TopicFilter, compacted_elsewhere: TopicFilter, seen: Collection[str]
) -> tuple[str, ...]:
    """What to tell of each pattern that fits none of the topics seen: it may be mistyped, or be about another broker."""
    asked = () if topics.include == TopicFilter().include else topics.include
    return tuple(
        f"{option} {pattern}: matches no topic (it must match the whole name; internal topics are skipped)"
        for option, patterns in (("--topic", asked), ("--compacted", compacted_elsewhere.include))
        for pattern in unmatched(patterns, seen)
    )


def _topics_of(partitions: Sequence[PartitionFiles], problems: Sequence[ScanProblem]) -> set[str]:
    named = (problem.topic_partition for problem in problems if problem.topic_partition is not None)
    return {each.topic for each in (*(files.topic_partition for files in partitions), *named)}


def _misnamed_directories(log_dirs: Sequence[Path]) -> list[str]:
    """Warnings about directories that hold segments under a name that is no partition's: they are not read."""
    found: list[str] = []
    for log_dir in log_dirs:
        with suppress(OSError):  # The scan reports a log dir that cannot be listed.
            found += [
                f"{path}: an unfinished restore. It was skipped, and a broker does not start with it. Run the same restore "
                "command again, or remove it"
                if path.name.endswith(STAGING_SUFFIX)
                else f"{path}: holds segments, but its name is not that of a partition directory (expected "
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
