"""What a process remembers does not grow with the archive: a writer keeps the part that local files can be compared with."""

from __future__ import annotations

from pathlib import Path

import structlog

from sidecar.archive.actions import Add
from sidecar.archive.state import empty_state, newest_part
from sidecar.clock import ManualClock
from sidecar.model import ObjectKey
from sidecar.pipeline.commit_log import CommitLog
from sidecar.pipeline.journal import Attempt
from sidecar.pipeline.recovery import settle_attempts
from sidecar.pipeline.verify import verify_partition
from tests.archive.builders import LINEAGE, WRITER, a_segment, after
from tests.fakes.memory_store import Fault, FaultKind, MemoryStore
from tests.golden import golden
from tests.pipeline.rig import archived_states, copy_partitions, ranges, rolled_ranges, rounds_over, tools_for

LOGS = golden("4.3.0") / "logs"


def test_the_newest_part_begins_where_the_local_log_does_and_is_never_empty() -> None:
    state = after(empty_state(LINEAGE), *([Add(a_segment(100 * number))] for number in range(5)))
    assert ranges(newest_part(state, 0)) == ranges(state)
    assert ranges(newest_part(state, 199)) == ranges(state)[1:]
    assert ranges(newest_part(state, 200)) == ranges(state)[2:]
    assert ranges(newest_part(state, 10_000)) == ranges(state)[-1:]
    assert newest_part(state, 10_000).end_offset == 500
    assert newest_part(empty_state(LINEAGE), 7) == empty_state(LINEAGE)


def test_an_archiver_remembers_only_what_the_local_log_still_has(tmp_path: Path) -> None:
    copy, store = copy_partitions(tmp_path, "orders-0"), MemoryStore()
    spans = rolled_ranges(copy, "orders-0")
    with tools_for(copy, store, tmp_path / "state", max_queue=5) as tools:
        rounds = rounds_over(tools, copy)
        rounds.run_once()
        for base, _ in spans[:4]:
            for file in (copy / "orders-0").glob(f"{base:020d}.*"):
                file.unlink()
        for _ in range(8):
            assert rounds.run_once().errors == []
        remembered = {str(tp): archiver._known.state for tp, archiver in rounds._archivers.items()}["orders-0"]
    whole = archived_states(store)["orders-0"]
    assert ranges(whole) == spans
    assert remembered is not None
    assert ranges(remembered) == spans[4:]
    found = verify_partition(store, ObjectKey(whole.lineage.root), ManualClock(0), deep=True)
    assert (found.problems, found.orphans) == ((), ())


def test_a_checkpoint_holds_the_whole_state_though_its_writer_did_not(tmp_path: Path) -> None:
    store = MemoryStore()
    log = CommitLog(store, LINEAGE.root, store.clock, checkpoint_every=10)
    state = empty_state(LINEAGE)
    for number in range(15):
        state = newest_part(log.append([Add(a_segment(100 * number))], WRITER, state), 10_000)
    assert len(state.segments) == 1
    read = CommitLog(store, LINEAGE.root, store.clock)
    assert len(read.read().segments) == 15
    assert read.passed_over == []
    assert any("/checkpoints/" in key for key in store.objects)


def test_checkpoints_that_always_fail_cost_less_and_less(tmp_path: Path) -> None:
    store = MemoryStore(faults=[Fault("put_if_absent", n, FaultKind.DENIED, "/checkpoints/") for n in range(100)])
    log, state = CommitLog(store, LINEAGE.root, store.clock, checkpoint_every=10), empty_state(LINEAGE)
    with structlog.testing.capture_logs() as logs:
        for number in range(50):
            state = log.append([Add(a_segment(100 * number))], WRITER, state)
    assert 3 <= [entry["event"] for entry in logs].count("checkpoint_not_written") <= 9


def test_an_attempt_below_what_is_remembered_is_never_discarded(tmp_path: Path) -> None:
    committed = a_segment(0)
    state = after(empty_state(LINEAGE), [Add(committed)], [Add(a_segment(100))], [Add(a_segment(200))])
    root, store = state.lineage.root, MemoryStore()
    keys = [ObjectKey(f"{root}/{key}") for key in (committed.log_key, committed.indexes_key)]
    for key in keys:
        store.put_if_absent(key, b"bytes")
    with tools_for(LOGS, store, tmp_path) as tools:
        # As a journal on a full disk leaves it: committed, but not ended.
        attempt = Attempt(
            segment_id=committed.segment_id,
            root=root,
            base_offset=0,
            end_offset=100,
            log_key=committed.log_key,
            indexes_key=committed.indexes_key,
            inode=1,
            size_bytes=5,
            mtime_ns=1,
            begun_ms=1,
        )
        tools.journal.begin(attempt)
        settle_attempts(tools, newest_part(state, 250), ())
        assert set(keys) <= set(store.objects)
        settle_attempts(tools, state, ())
        assert tools.journal.attempts(root) == ()
    assert set(keys) <= set(store.objects)
