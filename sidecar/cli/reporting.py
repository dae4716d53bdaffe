"""`status` and `verify`: what an archive holds, and whether all of it is there."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from sidecar.cli.archiving import Archive, Excluded, Topics
from sidecar.cli.engines import Engine, Master, Work, WorkKind, embedded_spark, spark_flags, takes_spark
from sidecar.cli.options import GlobalOptions, is_chosen, refuse_empty, warn_unmatched, with_chosen
from sidecar.cli.output import print_answer, print_table, remark, size, utc
from sidecar.clock import SystemClock
from sidecar.errors import PartitionError, SettingsError, SidecarError, StoreError, VerificationMismatch
from sidecar.model import EngineName
from sidecar.plurals import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from rich.text import Text

    from sidecar.config import Settings
    from sidecar.verify.segments import Checks
    from sidecar.verify.status import PartitionRow
    from sidecar.verify.verify import PartitionVerification


def status(options: GlobalOptions, archive: Archive = None, topic: Topics = None, exclude: Excluded = None) -> int:
    """Show the content of the archive, by partition. Exit code 3 if a partition cannot be read, 6 if the store fails
    for all of them or refuses to list one, 1 if nothing is archived there.

    `undo until` is computed from this command's gc.grace_period_ms: give it the same --config as `run`. If that file has
    broker.log_dirs, the command also shows the state of the broker's log cleaner.
    """
    settings = _settings(options, archive, topic, exclude)
    from sidecar.storage.opening import open_archive_to_read
    from sidecar.verify.status import archive_status

    store = open_archive_to_read(settings.store)
    rows = archive_status(
        store, SystemClock(), include=is_chosen(settings), grace_period_ms=settings.gc.grace_period_ms
    )
    if options.json:
        for row in rows:
            print_answer("partition_status", row.to_json())
    elif rows:
        name = _names(rows)
        shown = [
            (
                name(row),
                row.topic_id,
                row.start_offset,
                row.end_offset,
                *((None, None, None) if row.problem else (row.segments, size(row.bytes), size(row.compacted_bytes))),
                row.clean_end_offset,
                None if row.undo_until_ms is None else utc(row.undo_until_ms),
                None if row.leader_epoch < 0 else row.leader_epoch,
                _holes(row.holes),
            )
            for row in rows
        ]
        columns = ["partition", "topic id", "from#", "to#", "segments#", "size#", "compacted#", "clean to#"]
        columns += ["undo until", "leader epoch#", "gaps"]
        print_table(f"Archive {store.url}", columns, shown, colors=options.colors)
        for row in rows:
            for text in filter(None, (row.problem, row.remark)):
                remark(f"{name(row)}: {text}")
    if settings.broker.log_dirs:
        _show_cleaner(options, settings)
    if not rows:
        refuse_empty(store, settings)
    warn_unmatched(settings, {row.topic for row in rows}, "of the archive")
    if all(row.store_failed for row in rows):
        return StoreError.exit_code
    return PartitionError.exit_code if any(row.problem for row in rows) else 0


def _show_cleaner(options: GlobalOptions, settings: Settings) -> None:
    """The state of the broker's own log cleaner, if its log dirs are configured."""
    from sidecar.runner.cleaner_watch import CleanerWatch
    from sidecar.runner.configured_facts import open_facts

    clock = SystemClock()
    with open_facts(settings, clock) as facts:
        facts.refresh()
        after_s = settings.broker.cleaner_stalled_after_s
        report = CleanerWatch(settings.broker.log_dirs, facts, clock, after_s, counts_from_files=True).look()
    if options.json:
        print_answer("broker_cleaner", report.as_json())
    else:
        remark(report.line)


def verify(
    options: GlobalOptions,
    archive: Archive = None,
    topic: Topics = None,
    exclude: Excluded = None,
    deep: Annotated[
        bool,
        typer.Option(
            "--deep",
            help="Read every byte, every batch and the whole commit log. Without it: check sizes, the checksums "
            "that the store has, indexes, commits from the newest checkpoint on, and whether the commits below it exist.",
        ),
    ] = False,
    engine: Engine = None,
    master: Master = None,
) -> int:
    """Prove that the archive is complete. Exit code 4: it is not. 3: a part of it cannot be read. 6: the store fails
    for all of it, or refuses to list a partition. 1: it is empty, or a partition has DELAYED segments and no commit.

    A segment is FOUND if the store has its committed objects. It is LOST if they are missing or damaged, or if its
    offsets were recorded as lost. Above the archive's end it is UPLOADING for 15 minutes, then DELAYED. Offsets that
    were recorded as lost are listed each time. They do not change the exit code, because no retry can recover them.
    """
    if not deep and (engine is EngineName.SPARK or master is not None):
        raise SettingsError("Spark is only for --deep: without it almost nothing is read")
    settings = _settings(options, archive, topic, exclude, spark_flags(master, engine))
    from sidecar.storage.opening import open_archive_to_read
    from sidecar.verify.verify import verify_archive

    store = open_archive_to_read(settings.store)
    table = VerificationTable()
    with _checks(settings, deep=deep) as checks:
        for partition in verify_archive(store, SystemClock(), deep=deep, include=is_chosen(settings), checks=checks):
            table.add(partition)
            if options.json:
                print_answer("partition_verification", partition.to_json())
    if table.is_empty:
        refuse_empty(store, settings)
    warn_unmatched(settings, table.topics, "of the archive")
    if not options.json:
        table.show(store.url, colors=options.colors)
    if table.has_mismatch:
        return VerificationMismatch.exit_code
    if table.store_failed:
        return StoreError.exit_code
    if table.has_unread:
        return PartitionError.exit_code
    return SidecarError.exit_code if table.has_uncommitted else 0


@contextmanager
def _checks(settings: Settings, *, deep: bool) -> Iterator[Checks | None]:
    """Who reads the segments; None: threads of this process."""
    # Only a name or a cluster takes reading to Spark, whatever its size.
    if not deep or not takes_spark(settings, Work(WorkKind.READING, 0, on_this_machine=False)):
        yield None
        return
    from sidecar.spark.engine import SparkEngine
    from sidecar.verify.segments import PRELOADED, scrub_on_engine

    with embedded_spark(settings, PRELOADED) as spark:
        yield partial(scrub_on_engine, settings.store, SparkEngine(spark))


def _settings(
    options: GlobalOptions,
    archive: str | None,
    topics: list[str] | None,
    excluded: list[str] | None,
    spark: Mapping[str, Any] | None = None,
) -> Settings:
    return with_chosen(options.settings({"store.url": archive, **(spark or {})}), topics, excluded)


def _names(rows: Iterable[PartitionRow]) -> Callable[[PartitionRow], str]:
    """What partitions are called: with the cluster where there are several, of which each may have a topic of that name."""
    has_several = len({row.cluster_id for row in rows}) > 1
    return lambda row: (
        f"{row.cluster_id}/{row.topic}-{row.partition}" if has_several else f"{row.topic}-{row.partition}"
    )


def _holes(holes: tuple[Any, ...]) -> str:
    return " ".join(f"[{hole.base_offset}, {hole.end_offset})" for hole in holes)


_OF_OBJECTS: Final = {"missing_object", "size_mismatch", "checksum_mismatch", "corrupt_content"}


_UNCOMMITTED: Final = (
    "segments were uploaded, and nothing is committed. If the partition was archived before, its commits are missing: run no gc, "
    "and restore them from a replica of the bucket or earlier versions of the objects"
)


class VerificationTable:
    """Takes one verification after the other."""

    def __init__(self) -> None:
        self._rows: list[tuple[PartitionRow, tuple[Any, ...], str]] = []
        self._problems: list[str] = []
        self._of_objects = False
        self._size_only_objects = 0
        self.topics: set[str] = set()
        self.is_empty = True
        """Whether no partition has a commit, or a problem."""
        self.has_mismatch = False
        self.has_unread = False
        self.has_uncommitted = False
        """Whether a partition has no commit, and uploads that are too old to be under way."""
        self.store_failed = True
        """Whether the store gave nothing of any partition."""

    def add(self, found: PartitionVerification) -> None:
        row = found.row
        states = [str(segment.state) for segment in found.segments]
        counts = " ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
        self.topics.add(row.topic)
        seen = (None, None) if row.problem else (counts, len(found.orphans))
        self._size_only_objects += found.size_only_objects
        for problem in found.problems:
            self._of_objects |= str(problem.kind) in _OF_OBJECTS
            self._problems.append(problem.what if problem.key in problem.what else f"{problem.key}: {problem.what}")
        is_uncommitted = row.end_offset is None and found.is_sound
        is_delayed = is_uncommitted and "DELAYED" in states
        self._rows.append((row, (*seen, _verdict(found)), _UNCOMMITTED if is_delayed else row.remark))
        self.has_uncommitted |= is_delayed
        self.is_empty &= is_uncommitted
        self.has_unread |= found.is_unread
        self.store_failed &= row.store_failed
        self.has_mismatch |= found.differs

    def show(self, url: str, *, colors: bool) -> None:
        """On stdout the table, on stderr the problems and what to do about them."""
        columns = ["partition", "from#", "to#", "segments", "orphaned objects#", "verdict"]
        name = _names(row for row, *_ in self._rows)
        lineages = Counter(name(row) for row, *_ in self._rows)
        rows = [
            (
                f"{name(row)} {row.topic_id}" if row.topic_id and lineages[name(row)] > 1 else name(row),
                row.start_offset,
                row.end_offset,
                *shown,
            )
            for row, shown, _ in self._rows
        ]
        print_table(f"Verification of {url}", columns, rows, colors=colors)
        for problem in self._problems:
            remark(f"problem: {problem}")
        for row, *_ in self._rows:
            for hole in row.holes:
                remark(f"recorded as lost: {name(row)} {hole}")
        for row, _, text in self._rows:
            if text:
                remark(f"{name(row)}: {text}")
        if self._size_only_objects:
            remark(
                f"{plural(self._size_only_objects, '.log object')}: only the size was compared, because the store has no CRC-32C; "
                "--deep reads every byte"
            )
        if self._of_objects:
            remark(
                "restore the missing or damaged objects from a replica of the bucket or earlier versions, then "
                "verify again"
            )


def _verdict(found: PartitionVerification) -> Text:
    from rich.text import Text

    if found.problems:
        return Text(plural(len(found.problems), "problem"), "red")
    if found.row.end_offset is None:
        return Text("nothing committed", "yellow")
    holes = len(found.row.holes)
    return Text(plural(holes, "recorded gap"), "yellow") if holes else Text("sound", "green")
