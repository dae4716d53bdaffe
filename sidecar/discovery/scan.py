"""Lists log directories: every partition in them, or why it cannot be read."""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sidecar.config.topic_filter import TopicFilter
from sidecar.discovery.partition_directory import ListingCache, read_partition_directory
from sidecar.errors import PartitionError
from sidecar.logformat.names import META_PROPERTIES, DirectoryState, parse_directory_name
from sidecar.model import PartitionFiles, TopicPartition


@dataclass(frozen=True, slots=True)
class ScanProblem:
    """What could not be read: a partition, or a whole log dir (then `topic_partition` is None)."""

    topic_partition: TopicPartition | None
    path: Path
    error: PartitionError


@dataclass(frozen=True, slots=True)
class ScanResult:
    """Partitions in ascending order, each at most once; and the problems, in ascending order of their paths."""

    partitions: tuple[PartitionFiles, ...]
    problems: tuple[ScanProblem, ...]


class Scan(Protocol):
    """Lists log directories. `doubted`: partition directories in which a file was not what was listed before."""

    def __call__(self, doubted: Collection[Path] = ()) -> ScanResult: ...


def scan_log_dirs(
    log_dirs: Sequence[Path],
    topics: TopicFilter,
    doubted: Collection[Path] = (),
    *,
    cache: ListingCache | None = None,
    require_formatted: bool = False,
) -> ScanResult:
    """All live partitions of the accepted topics in these log dirs; directories being moved or deleted are passed over.

    Nothing that lies in one partition or one log dir keeps the others from being found.

    Args:
        doubted: see `Scan`.
        cache: spares the listing of directories in which nothing came or went since the last scan with it, but for the doubted.
        require_formatted: a log dir with neither `meta.properties` nor any partition is a problem: a mount point without its
            disk has that form, and no running broker's log dir does.
    """
    read = read_partition_directory if cache is None else cache.read
    if cache is not None:
        cache.doubt(doubted)
    problems: list[ScanProblem] = []
    by_partition: dict[TopicPartition, list[Path]] = {}
    for log_dir in distinct(log_dirs):
        try:
            for topic_partition in _live_partitions(log_dir, topics, require_formatted=require_formatted):
                by_partition.setdefault(topic_partition, []).append(log_dir)
        except PartitionError as error:
            problems.append(ScanProblem(None, log_dir, error))
    partitions: list[PartitionFiles] = []
    for topic_partition in sorted(by_partition):
        found_in = by_partition[topic_partition]
        try:
            partitions.append(_read_only_copy(topic_partition, found_in, read))
        except PartitionError as error:
            problems.append(ScanProblem(topic_partition, found_in[0] / str(topic_partition), error))
    if cache is not None:
        cache.keep_only(files.directory for files in partitions)
    return ScanResult(tuple(partitions), tuple(sorted(problems, key=lambda problem: problem.path)))


def distinct(log_dirs: Iterable[Path]) -> Iterator[Path]:
    """Each directory under the first of its names: a second one would make every partition in it a duplicate."""
    seen: set[Path] = set()
    for log_dir in log_dirs:
        real = Path(os.path.realpath(log_dir))
        if real not in seen:
            seen.add(real)
            yield log_dir


def _live_partitions(log_dir: Path, topics: TopicFilter, *, require_formatted: bool) -> Iterator[TopicPartition]:
    is_formatted = False
    try:
        with os.scandir(log_dir) as entries:
            for entry in entries:
                name = parse_directory_name(entry.name)
                is_formatted = is_formatted or name is not None or entry.name == META_PROPERTIES
                if name is None or name.state is not DirectoryState.LIVE:
                    continue
                if topics.accepts(name.topic_partition.topic) and entry.is_dir():
                    yield name.topic_partition
    except OSError as error:
        raise PartitionError(
            f"log dir {log_dir} cannot be read: its partitions are not archived until a scan can ({error.strerror or error})"
        ) from error
    if require_formatted and not is_formatted:
        raise PartitionError(
            f"log dir {log_dir} holds neither {META_PROPERTIES} nor a partition: mount its disk, or let the broker "
            "format it. It is retried at every scan"
        )


def _read_only_copy(
    topic_partition: TopicPartition,
    log_dirs: Sequence[Path],
    read: Callable[[TopicPartition, Path, Path], PartitionFiles],
) -> PartitionFiles:
    name = str(topic_partition)
    if len(log_dirs) > 1:
        # A move gives the new copy its name before it takes it from the old one. Source: LogManager.replaceCurrentWithFutureLog.
        log_dirs = [log_dir for log_dir in log_dirs if (log_dir / name).is_dir()] or log_dirs[:1]
    if len(log_dirs) > 1:
        places = " and ".join(str(log_dir / name) for log_dir in log_dirs)
        raise PartitionError(
            f"{topic_partition} is in two log dirs, {places}, and which one is live is unknown. While "
            "a broker moves a partition, both exist for a moment; the next scan finds one. If both stay, a disk "
            "failed or the broker ended during the move, and the broker may refuse to start. Stop it, then remove "
            "the directory on the failed disk, or at the source of the move"
        )
    return read(topic_partition, log_dirs[0], log_dirs[0] / name)
