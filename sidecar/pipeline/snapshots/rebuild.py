"""`snapshots rebuild`: writes the snapshot of every segment base into a directory of our own."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sidecar.engine_ports import TaskEngine
from sidecar.errors import PartitionError, SettingsError, StagingFull
from sidecar.logformat.names import Suffix, file_name
from sidecar.pipeline.snapshots.counting import Counting, Watcher
from sidecar.pipeline.snapshots.folding import Forgetting, Misplaced, PartitionJob, StateAt, Stopped, fold
from sidecar.pipeline.snapshots.planning import PartitionLog, plan_job
from sidecar.pipeline.snapshots.targets import Targets


@dataclass(frozen=True, slots=True)
class RebuiltSnapshot:
    """A file that was written. `window_ms`: producers idle for longer are left out, None: nobody is."""

    offset: int
    path: Path
    producers: int
    open_transactions: int
    exact: bool
    window_ms: int | None


@dataclass(slots=True)
class Rebuilding:
    """One partition: replayed from `start_offset`, `from_snapshot` if a broker's snapshot told what was before."""

    log: PartitionLog
    start_offset: int | None = None
    from_snapshot: bool = False
    snapshots: list[RebuiltSnapshot] = field(default_factory=list)
    problem: str = ""

    def to_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "topic": self.log.topic_partition.topic,
            "partition": self.log.topic_partition.partition,
            "directory": self.log.place,
            "start_offset": self.start_offset,
            "from_snapshot": self.from_snapshot,
            "snapshots": [
                {
                    "offset": snapshot.offset,
                    "path": str(snapshot.path),
                    "origin": "rebuilt",
                    "producers": snapshot.producers,
                    "open_transactions": snapshot.open_transactions,
                    "exact": snapshot.exact,
                    "window_ms": snapshot.window_ms,
                }
                for snapshot in self.snapshots
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
    targets: Targets, out: Path, engine: TaskEngine, forgetting: Forgetting, *, watcher: Watcher | None = None
) -> RebuildReport:
    """Replay every partition from its log's start, and write `<E>.snapshot` for each segment base E above the first.

    Into `out` itself if a single partition directory was named, else into `out/<topic>-<partition>`. Files of these names are
    replaced. Raises SettingsError if `out` lies where a broker's files are, StagingFull if it cannot be written to.
    """
    _refuse_broker_directories(targets, out)
    work: list[tuple[Rebuilding, PartitionJob]] = []
    rebuildings = []
    for log in targets.partitions:
        rebuilding = Rebuilding(log)
        rebuildings.append(rebuilding)
        try:
            work.append((rebuilding, plan_job(log, log.bases)))
        except PartitionError as error:
            rebuilding.problem = str(error)
    jobs = [job for _, job in work]
    for index, event in fold(jobs, engine, Counting(jobs, watcher)):
        rebuilding, job = work[index]
        rebuilding.start_offset, rebuilding.from_snapshot = job.start.end_offset, job.from_snapshot
        match event:
            case StateAt():
                directory = out if targets.single else out / str(job.topic_partition)
                rebuilding.snapshots.append(_write(directory, event, forgetting))
            case Misplaced(offset, reason):
                rebuilding.problem = f"offset {offset}: {reason}"
            case Stopped(offset, reason):
                rebuilding.problem = f"{reason}; snapshots above offset {offset} cannot be made"
    return RebuildReport(tuple(rebuildings), targets.problems)


def _write(directory: Path, state: StateAt, forgetting: Forgetting) -> RebuiltSnapshot:
    table = forgetting.snapshot_table(state)
    path = directory / file_name(table.end_offset, Suffix.SNAPSHOT)
    temporary = path.with_suffix(".tmp")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(table.to_snapshot())
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise StagingFull(f"{path}: cannot be written: {error.strerror}") from error
    return RebuiltSnapshot(
        offset=table.end_offset,
        path=path,
        producers=len(table),
        open_transactions=sum(entry.current_txn_first_offset is not None for entry in table.entries()),
        exact=state.exact,
        window_ms=forgetting.expiration(state.log_time_ms).window_ms,
    )


def _refuse_broker_directories(targets: Targets, out: Path) -> None:
    for directory in targets.directories:
        if out.resolve().is_relative_to(directory.resolve()):
            raise SettingsError(f"--out {out} lies in {directory}: a broker's directories are never written to")
