"""What this process's predecessors knew of archives, on our own volume: a start asks the store only what is new since.

Never the truth: the newest remembered commit is compared with the store's, and an entry that does not match is dropped.
"""

import hashlib
import json
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

from sidecar.archive.checkpoint import decode_checkpoint, encode_checkpoint
from sidecar.archive.coverage import ArchiveExtent, Coverage, Run
from sidecar.archive.keys import parse_root
from sidecar.archive.state import PartitionState
from sidecar.clock import Clock
from sidecar.errors import CorruptFile
from sidecar.event_log import EVENTS
from sidecar.host.journal import sound_database
from sidecar.model import ObjectKey, TopicPartition
from sidecar.partition.domain_events import DomainEvent, Emit, OffsetsLost

SEGMENTS_KEPT: Final = 4
"""The newest ones: enough to append, and to recognise the local log. What is remembered must not grow with the archive."""
_VERSION: Final = 1
"""To be raised where the table changes or a fact comes to mean something else: a fact that has come or gone is noticed without."""
_PRAGMAS: Final = ("synchronous=OFF", "journal_mode=MEMORY")
"""What a crash of the machine loses or damages is read from the store again."""
_SCHEMA = f"""
PRAGMA user_version = {_VERSION};
CREATE TABLE IF NOT EXISTS archives (
    topic TEXT NOT NULL, partition INTEGER NOT NULL, root TEXT NOT NULL, number INTEGER NOT NULL,
    state BLOB NOT NULL, facts BLOB NOT NULL, sha256 BLOB NOT NULL, PRIMARY KEY (topic, partition)
) STRICT;
CREATE TABLE IF NOT EXISTS losses (latest INTEGER PRIMARY KEY CHECK (latest = 1), at_ms INTEGER NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS gone (
    topic TEXT NOT NULL, partition INTEGER NOT NULL, log TEXT NOT NULL, spans TEXT NOT NULL, PRIMARY KEY (topic, partition)
) STRICT;
"""


GoneOffsets: TypeAlias = tuple[tuple[Any, ...], tuple[tuple[int, int], ...]]
"""What a log is known by later, its topic id first, None for none; and the ranges of its offsets."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """A lineage as it was known last.

    `state`: its newest part. `largest_timestamp_ms`: of all its segments, -1 for none. `newest_checkpoint`: the number of one
    that the store has, -1 if none is known. `extent`: what all of it covers. `mark`: see `CommitLog.mark`, of its last commit.
    """

    state: PartitionState
    largest_timestamp_ms: int
    newest_checkpoint: int
    extent: ArchiveExtent
    mark: str = ""


def newest_segments(state: PartitionState) -> PartitionState:
    """The state with no more than is kept. What it says of the archive's start, size and removed segments is not true."""
    segments = state.segments[-SEGMENTS_KEPT:]
    start_offset = segments[0].base_offset if segments else state.end_offset or 0
    holes = tuple(hole for hole in state.holes if hole.base_offset >= start_offset)
    return replace(state, segments=segments, holes=holes, removed=(), clean=None, is_whole=False)


class ArchiveCache:
    """One lineage per partition. Thread-safe. A file that cannot be used is re-created, or not used.

    `path`: the file, None where nothing outlives the process.
    """

    def __init__(self, directory: Path | None = None) -> None:
        """Args: directory: ours alone, as that of the journal. Default: nothing outlives the process."""
        self._guard = threading.Lock()
        self._connection = _open(None if directory is None else directory / "archives.sqlite")
        # sqlite's row of the one database: its number, its name, its file or "".
        _, _, file = self._connection.execute("PRAGMA database_list").fetchone()
        self.path = Path(file) if file else None
        self._gone: dict[TopicPartition, GoneOffsets] = {}
        with suppress(sqlite3.Error):
            for topic, partition, log, spans in self._connection.execute("SELECT * FROM gone"):
                with suppress(ValueError, TypeError, RecursionError):  # Of another release.
                    found = tuple((int(start), int(end)) for start, end in json.loads(spans))
                    self._gone[TopicPartition(topic, partition)] = tuple(json.loads(log)), found

    def _run(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """Rows of a statement. A file that fails is no error: then there are none."""
        with self._guard, suppress(sqlite3.Error):
            return self._connection.execute(statement, values).fetchall()
        return []

    def recall(self, topic_partition: TopicPartition) -> Remembered | None:
        rows = self._run(
            "SELECT root, number, state, facts, sha256 FROM archives WHERE topic = ? AND partition = ?",
            (topic_partition.topic, topic_partition.partition),
        )
        return _decoded(*rows[0]) if rows else None

    def remember(self, remembered: Remembered) -> None:
        """Keep this in the place of what is known of the partition. Not being able to is no error."""
        state = remembered.state
        if not state.next_number:
            return
        lineage, number = state.lineage, state.next_number - 1
        name = lineage.topic_partition
        body = encode_checkpoint(newest_segments(state))
        facts = json.dumps(
            {
                "largest_timestamp_ms": remembered.largest_timestamp_ms,
                "newest_checkpoint": remembered.newest_checkpoint,
                "extent": asdict(remembered.extent),
                "mark": remembered.mark,
            }
        ).encode()
        row = (name.topic, name.partition, lineage.root, number, body, facts, _seal(body, facts))
        self._run("INSERT OR REPLACE INTO archives VALUES (?,?,?,?,?,?,?)", row)

    def noting_losses(self, clock: Clock) -> Emit:
        """A sink that keeps when offsets were last lost: a restart must not end the alert. Not being able to is no error."""

        def note(event: DomainEvent) -> None:
            if isinstance(event, OffsetsLost):
                self._run("INSERT OR REPLACE INTO losses VALUES (1, ?)", (clock.now_ms(),))

        return note

    def last_loss_ms(self) -> int | None:
        return next((int(at_ms) for (at_ms,) in self._run("SELECT at_ms FROM losses")), None)

    def note_gone(self, topic_partition: TopicPartition, gone: GoneOffsets) -> None:
        """Keep which offsets of a log were seen to go and are not reported yet; nothing is kept where there are none.

        A file that fails keeps nothing across a restart; this process still knows.
        """
        log, spans = gone
        name = topic_partition.topic, topic_partition.partition
        with self._guard, suppress(sqlite3.Error):
            if spans:
                self._gone[topic_partition] = gone
                row = (*name, json.dumps(log), json.dumps(spans))
                self._connection.execute("INSERT OR REPLACE INTO gone VALUES (?,?,?,?)", row)
            elif self._gone.pop(topic_partition, None) is not None:
                self._connection.execute("DELETE FROM gone WHERE topic = ? AND partition = ?", name)

    def gone(self, topic_partition: TopicPartition) -> GoneOffsets | None:
        """What was noted last, None where nothing is left to report."""
        with self._guard:
            return self._gone.get(topic_partition)

    def close(self) -> None:
        with self._guard:
            self._connection.close()


def _decoded(root: str, number: int, body: bytes, facts: bytes, sha256: bytes) -> Remembered | None:
    if _seal(body, facts) != sha256:
        return None
    try:
        state = replace(decode_checkpoint(body, number, parse_root(ObjectKey(root))), is_whole=False)
        found = json.loads(facts)
        extent = found["extent"]
        runs = tuple(
            Run(run["base_offset"], run["end_offset"], Coverage(run["coverage"])) for run in extent.pop("runs")
        )
        return Remembered(
            state,
            found["largest_timestamp_ms"],
            found["newest_checkpoint"],
            ArchiveExtent(runs=runs, **extent),
            str(found.get("mark", "")),  # Releases before this one kept none, and read the commit.
        )
    except (CorruptFile, KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return None  # Of another release, whose facts are not ours.


def _seal(body: bytes, facts: bytes) -> bytes:
    return hashlib.sha256(body + facts).digest()


def _open(path: Path | None) -> sqlite3.Connection:
    if path is not None:
        for _ in range(2):
            try:
                return sound_database(str(path), _PRAGMAS, _SCHEMA, _VERSION)
            except sqlite3.Error as error:
                EVENTS.warning("archive_cache_recreated", path=str(path), reason=str(error))
                with suppress(OSError):
                    path.unlink(missing_ok=True)
    return sound_database(":memory:", _PRAGMAS, _SCHEMA, _VERSION)


class HasMemory(Protocol):
    @property
    def memory(self) -> ArchiveCache: ...
