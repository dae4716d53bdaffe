"""A log with transactions that end in what gets lost, where their producers begin the next ones, too."""

from __future__ import annotations

from pathlib import Path

from sidecar.logformat.bodies.building import build_batch, build_marker
from sidecar.logformat.bodies.record import Record
from tests.fakes.memory_store import MemoryStore
from tests.golden import golden, wall_clock_ms
from tests.restore.archives import lose
from tests.runner.rig import archive, tools_for

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
KEY = b"K"
HOLE = (10, 20)
END = 50
COMMITTED_OFFSET = 9
"""Of the last committed record of the key; the records of it behind the hole are aborted."""
COMMITTED = {*range(4, 10), *range(25, 40), *range(41, END)}
"""What is committed of all that is not lost."""
_BEGIN_MS = wall_clock_ms("4.3.0") - 600_000


def _data(offset: int, count: int, producer_id: int | None, sequence: int, key: bytes | None = None) -> bytes:
    """Of a transaction, or of nobody's."""
    records = [Record(at, _BEGIN_MS + at, key or b"k%d" % at, b"v%d" % at) for at in range(offset, offset + count)]
    if producer_id is None:
        return build_batch(records, leader_epoch=0)
    return build_batch(
        records,
        leader_epoch=0,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=True,
    )


def _end(offset: int, producer_id: int, *, commit: bool = False) -> bytes:
    return build_marker(
        offset,
        commit=commit,
        producer_id=producer_id,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp_ms=_BEGIN_MS + offset,
        leader_epoch=0,
    )


def _segments() -> dict[int, bytes]:
    """Base offset to batches. Producer 2 begins after 1 does, ends before it, and begins again before that end.

    Producer 3 is in one transaction all over the hole.
    """
    return {
        0: _data(0, 3, 1, 0) + _data(3, 1, 2, 0) + _data(4, 1, 3, 0) + _data(5, 5, None, 0, KEY),
        10: _end(10, 2) + _data(11, 1, 2, 1) + _end(12, 1) + _data(13, 2, None, 0) + _data(15, 5, 1, 3),
        20: _data(20, 2, 1, 8, KEY) + _data(22, 1, 2, 2, KEY) + _end(23, 1) + _end(24, 2) + _data(25, 5, None, 0),
        30: _data(30, 2, 3, 1) + _data(32, 8, None, 0),
        40: _end(40, 3, commit=True) + _data(41, 9, None, 0),
    }


def _segments_about_a_narrow_hole() -> dict[int, bytes]:
    """Producer 2's transaction ends in the one offset that is lost, producer 1's is committed right behind it."""
    return {
        0: _data(0, 3, 1, 0) + _data(3, 2, 2, 0),
        5: _end(5, 2),
        6: _end(6, 1, commit=True) + _data(7, 3, None, 0),
        10: _data(10, 40, None, 0),
    }


def archived_with_narrow_hole(directory: Path) -> MemoryStore:
    """An archive of `t-0`, in whose hole [5, 6) there is no room for the markers of both that are open there."""
    return _archived(directory, _segments_about_a_narrow_hole(), 5)


def archived_with_hole(directory: Path) -> MemoryStore:
    """The archive of `t-0`, whose second segment is lost."""
    return _archived(directory, _segments(), HOLE[0])


def _archived(directory: Path, segments: dict[int, bytes], lost_base_offset: int) -> MemoryStore:
    log_dir, store = directory / "source", MemoryStore()
    (log_dir / "t-0").mkdir(parents=True)
    (log_dir / "meta.properties").write_bytes((golden("4.3.0") / "logs" / "meta.properties").read_bytes())
    for base_offset, batches in {**segments, END: b""}.items():
        (log_dir / "t-0" / f"{base_offset:020d}.log").write_bytes(batches)
    (log_dir / "t-0" / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
        (log_dir / name).write_text(f"0\n1\nt 0 {END}\n")
    with tools_for(log_dir, store, directory / "state") as context:
        assert archive(context, log_dir).errors == []
    lose(store, "t-0", lost_base_offset)
    return store
