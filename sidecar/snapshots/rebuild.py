"""`snapshots rebuild`: writes the snapshot of every segment base into a directory of our own."""

import os
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from producer_state.table import ProducerTable
from sidecar.discovery.partition_directory import require_elsewhere
from sidecar.engine_ports import TaskEngine
from sidecar.errors import OF_ONE_PARTITION, PartitionError
from sidecar.logformat.files import cannot_be_written
from sidecar.logformat.names import Suffix, file_name
from sidecar.reporting.advice import advised
from sidecar.reporting.progress import Watcher
from sidecar.snapshots import Replay
from sidecar.snapshots.folding import fold
from sidecar.snapshots.jobs import Ended, Forgetting, Misplaced, PartitionJob, StateAt, Stopped, also_said
from sidecar.snapshots.planning import plan_job
from sidecar.snapshots.resolve_paths import PartitionLog, Targets
from sidecar.snapshots.starts import StartKind


@dataclass(frozen=True, slots=True)
class RebuiltSnapshot:
    """A file that was written. `window_ms`: producers idle for longer are left out, None: none are.

    Its replay began at `start_offset`, where `start` says what was known.
    """

    offset: int
    path: Path
    producers: int
    open_transactions: int
    exact: bool
    window_ms: int | None
    start_offset: int
    start: StartKind


@dataclass(slots=True)
class Rebuilding:
    """One partition: replayed from `start_offset` on, `from_snapshot` if a broker's snapshot had the state before.

    `read_bytes`: bytes of segments that were read.
    """

    log: PartitionLog
    start_offset: int | None = None
    from_snapshot: bool = False
    snapshots: list[RebuiltSnapshot] = field(default_factory=list)
    problem: str = ""
    read_bytes: int = 0

    def add_problem(self, what: str) -> None:
        self.problem = also_said(self.problem, what)

    def to_json(self) -> dict[str, Any]:
        return {
            **asdict(self.log.topic_partition),
            "directory": self.log.place,
            "start_offset": self.start_offset,
            "from_snapshot": self.from_snapshot,
            "read_bytes": self.read_bytes,
            "snapshots": [
                {**asdict(snapshot), "path": str(snapshot.path), "origin": "rebuilt"} for snapshot in self.snapshots
            ],
            "problem": self.problem,
        }


@dataclass(frozen=True, slots=True)
class RebuildReport:
    """All partitions ascending, and what could not be listed."""

    partitions: tuple[Rebuilding, ...]
    problems: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """0, or 3 if something was left out."""
        incomplete = self.problems or any(partition.problem for partition in self.partitions)
        return PartitionError.exit_code if incomplete else 0


def rebuild(
    targets: Targets[PartitionLog],
    out: Path,
    engine: TaskEngine,
    forgetting: Forgetting,
    *,
    replay: Replay = Replay.WINDOW,
    watcher: Watcher | None = None,
) -> RebuildReport:
    """Replay every partition, and write `<E>.snapshot` for each segment base E above the first.

    All bases are wanted, so every segment is read, once. With Replay.WINDOW a damaged segment costs only the snapshots whose
    window it lies in; with Replay.FULL all above it.

    Into `out` itself if a single partition directory was named, else into `out/<topic>-<partition>`. Files of these names are
    replaced, but of several logs of one name nothing is written: no file would show whose it is. Raises SettingsError if `out`
    lies where a broker's files are, StagingFull if it cannot be written to.
    """
    require_elsewhere(out, targets.directories)
    work: list[tuple[Rebuilding, PartitionJob]] = []
    rebuildings = [Rebuilding(log) for log in targets.partitions]
    read = {(log.topic_partition, log.place) for log in targets.partitions}
    logs = Counter([*targets.unread, *(topic_partition for topic_partition, _ in read)])
    for rebuilding in rebuildings:
        if (count := logs[rebuilding.log.topic_partition]) > 1:
            rebuilding.problem = (
                f"{rebuilding.log.place}: one of {count} logs of {rebuilding.log.topic_partition}. Nothing was written, because "
                "their snapshots would have the same names. Name one directory at a time. Of an archive, restore each log into a "
                "directory of its own (--cluster-id, --incarnation): that writes its snapshots, too"
            )
            continue
        try:
            job = plan_job(rebuilding.log, rebuilding.log.bases, replay, forgetting)
        except PartitionError as error:
            rebuilding.problem = advised(error)
            continue
        work.append((rebuilding, job))
        for start in job.starts[:1]:
            rebuilding.start_offset, rebuilding.from_snapshot = start.offset, start.has_snapshot
    for rebuilding, event in fold(work, engine, watcher):
        match event:
            case StateAt():
                if event.refused:
                    rebuilding.add_problem(event.refused)
                    continue
                directory = out if targets.single else out / str(rebuilding.log.topic_partition)
                try:
                    table = rebuilding.log.without_decided(forgetting.snapshot_table(event))
                except OF_ONE_PARTITION as error:
                    rebuilding.add_problem(advised(error))
                    continue
                rebuilding.snapshots.append(_write(directory, event, table, forgetting))
            case Misplaced(offset, reason):
                rebuilding.add_problem(f"offset {offset}: {reason}")
            case Stopped():
                rebuilding.add_problem(event.problem)
            case Ended():
                rebuilding.read_bytes = event.read_bytes
    return RebuildReport(tuple(rebuildings), targets.problems)


def _write(directory: Path, state: StateAt, table: ProducerTable, forgetting: Forgetting) -> RebuiltSnapshot:
    path = directory / file_name(table.end_offset, Suffix.SNAPSHOT)
    temporary = path.with_suffix(".tmp")
    with cannot_be_written(path):
        directory.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("wb") as file:
                file.write(table.to_snapshot())
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    return RebuiltSnapshot(
        offset=table.end_offset,
        path=path,
        producers=len(table),
        open_transactions=len(table.open_transactions()),
        exact=state.exact,
        window_ms=forgetting.expiration(state.log_time_ms).window_ms,
        start_offset=state.start.offset,
        start=state.start.kind,
    )
