"""`Oracle`: typed requests to the JVM."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from tests.oracle.process import OracleProcess
from tests.oracle.results import (
    Boundary,
    CleanedLog,
    CleanedRound,
    CleanRound,
    DumpedBatch,
    DumpedRecord,
    RecoveredSegment,
    Replay,
)

NEVER_MS = 2**31 - 1
"""The largest `producer.id.expiration.ms` that Kafka can express (24.8 days)."""


class Oracle:
    """A context manager around one JVM; every method may raise OracleRefused (Kafka's exception) or OracleError.

    Partition directories must be named `<topic>-<partition>`, as Kafka demands. `recover` and `clean` change them in place.
    """

    def __init__(self, *, version: str = "4.3.0", timeout_s: float = 120.0, heap: str = "512m") -> None:
        self._process = OracleProcess(version=version, timeout_s=timeout_s, heap=heap)
        self._scratch: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Oracle:
        self._process.start()
        self._scratch = tempfile.TemporaryDirectory(prefix="oracle-")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.stop()
        if self._scratch is not None:
            self._scratch.cleanup()

    @property
    def pid(self) -> int:
        """Of the JVM."""
        return self._process.pid

    def snapshots(
        self,
        partition_directory: Path,
        out: Path,
        *,
        now_ms: int = 0,
        producer_id_expiration_ms: int = NEVER_MS,
        expire: bool = False,
        path: Literal["recover", "load"] = "recover",
    ) -> Replay:
        """Writes `<E>.snapshot` into `out` for the end E of every segment, by full replay from the first one.

        `expire`: remove the producers that are expired at `now_ms` before each is taken (and so from what follows).
        `path`: batch by batch with CRC check (LogSegment.recover), or a segment at a time (UnifiedLog.loadProducersFromRecords).
        """
        answer = self._process.request(
            {
                "op": "snapshots",
                "directory": str(partition_directory),
                "out": str(out),
                "now_ms": now_ms,
                "producer_id_expiration_ms": producer_id_expiration_ms,
                "expire": expire,
                "path": path,
            }
        )
        stopped = answer["stopped"]
        return Replay(
            boundaries=tuple(_boundary(row) for row in answer["boundaries"]),
            stopped=None if stopped is None else f"{stopped['error']}: {stopped['message']}",
            stopped_at_offset=None if stopped is None else stopped["next_offset"],
        )

    def recover(
        self, partition_directory: Path, *, config: Mapping[str, str | int] | None = None
    ) -> tuple[RecoveredSegment, ...]:
        """Rebuilds all indexes and leader-epoch-checkpoint from the .log files alone; cuts a log at its first invalid batch."""
        request = {"op": "recover", "directory": str(partition_directory), "config": dict(config or {})}
        answer = self._process.request(request)
        return tuple(RecoveredSegment(**row) for row in answer["segments"])

    def clean(
        self,
        partition_directory: Path,
        rounds: Sequence[CleanRound],
        *,
        config: Mapping[str, str | int] | None = None,
        first_dirty_offset: int | None = None,
        high_watermark: int | None = None,
        log_start_offset: int = 0,
        load_now_ms: int = 0,
        producer_id_expiration_ms: int = 86_400_000,
        offset_map: Literal["skimpy", "plain"] = "skimpy",
        map_slots: int | None = None,
        load_factor: float = 0.9,
        io_buffer_bytes: int = 256 * 1024,
        expire: bool = True,
        trust_snapshots: bool = False,
        clean_shutdown: bool = False,
    ) -> CleanedLog:
        """Loads the directory as a UnifiedLog, runs Kafka's Cleaner once per round, closes the log.

        Args:
            config: topic settings by Kafka's names; a small `segment.bytes` is allowed.
            first_dirty_offset: the cleaner's checkpoint; None if there is none. Each round goes on from the end of the last.
            load_now_ms: the clock while the log is loaded; 0: nothing is expired then. Recovery loads the state anew for each
                segment, so with a real clock producers are forgotten at segment bases.
            offset_map: Kafka's own, or "plain": unlimited, without collisions, and rewriting the clean section in a round
                that has nothing dirty (a real broker never runs such a round).
            map_slots: of the skimpy map; None: large enough for everything.
            expire: the live map holds exactly the producers that are unexpired at each round's `now_ms`.
            trust_snapshots: load producer state from the snapshots found; else they are deleted and all segments replayed.
            clean_shutdown: nothing is recovered, indexes are taken as found.
        """
        answer = self._process.request(
            {
                "op": "clean",
                "directory": str(partition_directory),
                "rounds": [
                    {"now_ms": round_.now_ms, "first_uncleanable_offset": round_.first_uncleanable_offset}
                    for round_ in rounds
                ],
                "config": dict(config or {}),
                "first_dirty_offset": first_dirty_offset,
                "log_start_offset": log_start_offset,
                "load_now_ms": load_now_ms,
                "producer_id_expiration_ms": producer_id_expiration_ms,
                "map": offset_map,
                "map_slots": map_slots or 0,
                "load_factor": load_factor,
                "io_buffer_bytes": io_buffer_bytes,
                "expire": expire,
                "trust_snapshots": trust_snapshots,
                "clean_shutdown": clean_shutdown,
                **({} if high_watermark is None else {"high_watermark": high_watermark}),
            }
        )
        return CleanedLog(
            log_start_offset=answer["log_start_offset"],
            log_end_offset=answer["log_end_offset"],
            last_stable_offset=answer["last_stable_offset"],
            active_base_offset=answer["active_base_offset"],
            rounds=tuple(_cleaned_round(row) for row in answer["rounds"]),
        )

    def dump_batches(self, log: Path) -> list[DumpedBatch]:
        """Every batch of a `.log` file as Kafka's reader sees it; an unreadable one raises OracleRefused."""
        kinds: list[type[Any]] = [bool if field.type == "bool" else int for field in fields(DumpedBatch)]
        return [
            DumpedBatch(*(kind(int(cell)) for kind, cell in zip(kinds, row, strict=True)))
            for row in self._dump(log, "batch")
        ]

    def dump_records(self, log: Path) -> list[DumpedRecord]:
        """Every record of a `.log` file, decompressed by Kafka's codecs; control records are among them."""
        return [_record(row) for row in self._dump(log, "record")]

    def dump_snapshot(self, snapshot: Path) -> list[tuple[int, ...]]:
        """Entries by Kafka's reader, each with its eight fields in the order of the file format."""
        return [tuple(int(cell) for cell in row) for row in self._dump(snapshot, "entry")]

    def _dump(self, file: Path, level: str) -> Iterator[list[str]]:
        if self._scratch is None:
            raise RuntimeError("the oracle is not running: use it as a context manager")
        out = Path(self._scratch.name) / "dump.tsv"
        self._process.request({"op": "dump", "file": str(file), "out": str(out), "level": level})
        with out.open(encoding="ascii") as lines:
            for line in lines:
                yield line.removesuffix("\n").split("\t")


def _boundary(row: Mapping[str, int]) -> Boundary:
    unstable = row["first_unstable_offset"]
    return Boundary(row["offset"], row["producers"], None if unstable < 0 else unstable)


def _cleaned_round(row: Mapping[str, Any]) -> CleanedRound:
    return CleanedRound(**{field.name: row.get(field.name, 0) for field in fields(CleanedRound)})


def _record(row: Sequence[str]) -> DumpedRecord:
    position, offset, timestamp_ms, sequence = (int(cell) for cell in row[:4])
    return DumpedRecord(
        position, offset, timestamp_ms, sequence, _bytes(row[4]), _bytes(row[5]), tuple(_headers(row[6]))
    )


def _bytes(cell: str) -> bytes | None:
    return None if cell == "-" else bytes.fromhex(cell)


def _headers(cell: str) -> Iterator[tuple[str, bytes | None]]:
    for part in cell.split(",") if cell else ():
        key, _, value = part.partition("=")
        yield bytes.fromhex(key).decode(), _bytes(value)
