"""The archive ends inside a segment of format v1: a cleaner has joined it with the next one."""

from __future__ import annotations

from pathlib import Path

from sidecar.archive.keys import below
from sidecar.logformat.bodies.legacy import build_legacy_message
from tests.fakes.memory_store import MemoryStore
from tests.runner.rig import archive, archived_states, copy_partitions, ranges, tools_for
from tests.segment.made_logs import NOW_MS, roll


def test_the_archive_goes_on_where_a_message_without_compression_begins(tmp_path: Path) -> None:
    """Its offset is the only one that it has."""
    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore()
    messages = [build_legacy_message(offset, b"k%d" % offset, b"v", timestamp_ms=NOW_MS) for offset in (0, 1, 4, 6)]
    roll(log_dir, {0: messages[:2], 3: messages[2:], 10: []}, 10)
    (log_dir / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 10\n")
    with tools_for(log_dir, store, tmp_path / "state", max_queue=1) as context:
        archive(context, log_dir)
    roll(log_dir, {0: messages, 10: []}, 10)
    with tools_for(log_dir, store, tmp_path / "state of the new leader") as context:
        assert archive(context, log_dir).errors == []
    (state,) = archived_states(store).values()
    assert ranges(state) == [(0, 3), (3, 10)]
    assert store.objects[below(state.lineage.root, state.segments[-1].log_key)] == b"".join(messages[2:])
