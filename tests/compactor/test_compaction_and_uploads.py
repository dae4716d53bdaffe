"""Uploads go on over an archive that compaction changes under them, also where they remember only its newest part."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from crc32c import crc32c

from sidecar.archive.actions import Add, Clean, Remove
from sidecar.archive.commit import Writer
from sidecar.archive.keys import below, indexes_key, log_key
from sidecar.archive.state import PartitionState
from sidecar.commits.attempts import resumable
from sidecar.commits.commit_log import CommitLog
from sidecar.commits.commit_window import COMMIT_WITHIN_MS, ORPHAN_MS, AgeCheck
from sidecar.compactor.gc import Collected, collect_garbage, collect_parts, orphaned_until_ms
from sidecar.host.journal import Attempt
from sidecar.model import ObjectKey
from sidecar.verify.verify import verify_archive
from tests.archive.builders import an_id
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import Fault, FaultKind, MemoryStore
from tests.fakes.store_at import StoreAt
from tests.golden import wall_clock_ms
from tests.runner.rig import archive, archived_states, copy_partitions, ranges, remove_offsets, rounds_over, tools_for

PARTITION = "orders-0"
NOW_MS = wall_clock_ms("4.3.0")
DAY_MS = 86_400_000


def replace_segments(store: MemoryStore, state: PartitionState, count: int) -> None:
    """Commit copies of the first segments as compacted ones."""
    removed, added = [], []
    for number, old in enumerate(state.segments[:count]):
        name = an_id(f"copy {number} of {old.base_offset}")
        keys = (log_key(old.base_offset, name), indexes_key(old.base_offset, name))
        new = replace(old, segment_id=name, log_key=keys[0], indexes_key=keys[1], generation=1, strategy="offset")
        for source, target in ((old.log_key, keys[0]), (old.indexes_key, keys[1])):
            store.put_if_absent(below(state.lineage.root, target), store.objects[below(state.lineage.root, source)])
        removed.append(Remove(old.segment_id, old.base_offset, old.end_offset, "compacted"))
        added.append(Add(new))
    clean = Clean(state.segments[0].base_offset, state.segments[count - 1].end_offset, "offset")
    log = CommitLog(store, state.lineage.root, ManualClock(NOW_MS))
    log.append([*removed, *added, clean], Writer(1, state.highest_leader_epoch, "test"), log.read())


def grow(log_dir: Path, hidden: dict[Path, bytes], up_to: int) -> None:
    for path, content in list(hidden.items()):
        if int(path.name[:20]) <= up_to:
            path.write_bytes(hidden.pop(path))
            assert path.read_bytes() == content


def hide(log_dir: Path, above: int) -> dict[Path, bytes]:
    found = [p for p in (log_dir / PARTITION).iterdir() if p.name[:20].isdigit() and int(p.name[:20]) > above]
    hidden = {path: path.read_bytes() for path in found}
    for path in found:
        path.unlink()
    return hidden


def test_a_writer_that_remembers_the_newest_part_only_appends_on_top_of_a_compaction(tmp_path: Path) -> None:
    log_dir, store = copy_partitions(tmp_path, PARTITION), MemoryStore()
    hidden = hide(log_dir, above=504)
    with tools_for(log_dir, store, tmp_path / "state") as context:
        rounds = rounds_over(context, log_dir)
        assert rounds.run_once().errors == []
        # The broker has deleted what is archived: of the archive only the newest part is remembered from the next round on.
        remove_offsets(log_dir / PARTITION, lambda offset: offset >= 362)
        grow(log_dir, hidden, 606)
        assert rounds.run_once().errors == []
        replace_segments(store, archived_states(store)[PARTITION], 3)
        grow(log_dir, hidden, 868)
        assert rounds.run_once().errors == []
        assert ranges(archived_states(store)[PARTITION])[-1][1] == 868
        assert [found.problems for found in verify_archive(store, context.clock, deep=True)] == [()]


def test_a_snapshot_that_was_compacted_and_cleared_away_since_is_read_where_it_is_now(tmp_path: Path) -> None:
    log_dir, store = copy_partitions(tmp_path, PARTITION), MemoryStore()
    hidden = hide(log_dir, above=504)
    with tools_for(log_dir, store, tmp_path / "state") as context:
        archive(context, log_dir)
    with tools_for(log_dir, store, tmp_path / "state") as context:
        rounds = rounds_over(context, log_dir)
        assert rounds.run_once().errors == []  # A restart: the archive is known, its producers are not yet.
        state = archived_states(store)[PARTITION]
        replace_segments(store, state, len(state.segments))
        writer = Writer(1, state.highest_leader_epoch, "t")
        later_ms = max(store.clock.now_ms(), context.clock.now_ms()) + DAY_MS
        found = collect_garbage(
            store, state.lineage.root, context.clock, writer, store_now_ms=later_ms, grace_period_ms=0
        )
        assert found == Collected(removed=len(state.segments), orphans=0)
        grow(log_dir, hidden, 868)
        assert rounds.run_once().errors == []
        assert ranges(archived_states(store)[PARTITION])[-1][1] == 868
        assert [found.problems for found in verify_archive(store, context.clock, deep=True)] == [()]


def garbage(tmp_path: Path) -> tuple[MemoryStore, PartitionState]:
    """An archive of which two segments are replaced, and an upload that nobody has committed."""
    log_dir, store = copy_partitions(tmp_path, PARTITION), MemoryStore()
    with tools_for(log_dir, store, tmp_path / "state") as context:
        archive(context, log_dir)
    replace_segments(store, archived_states(store)[PARTITION], 2)
    state = archived_states(store)[PARTITION]
    orphan = below(state.lineage.root, log_key(0, an_id("orphan")))
    store.put_if_absent(orphan, b"half")
    store.put_if_absent(below(state.lineage.root, "segments/readme.txt"), b"not ours")
    for key in store.objects:
        store.modified_ms[key] = NOW_MS
    return store, state


def collect(
    store: MemoryStore, state: PartitionState, now_ms: int, grace_ms: int = DAY_MS, **more: object
) -> Collected:
    writer = Writer(1, state.highest_leader_epoch, "test")
    root = state.lineage.root
    now = {"store_now_ms": now_ms, "grace_period_ms": grace_ms}
    return collect_garbage(store, root, ManualClock(NOW_MS), writer, **now, **more)  # type: ignore[arg-type]


def test_garbage_goes_after_the_grace_period_and_nothing_else_does(tmp_path: Path) -> None:
    store, state = garbage(tmp_path)
    before = dict(store.objects)
    assert collect(store, state, NOW_MS + DAY_MS - 1) == Collected()
    assert store.objects == before
    assert collect(store, state, NOW_MS + DAY_MS + 1, in_progress={an_id("orphan")}) == Collected(2, 0)
    assert collect(store, state, NOW_MS + DAY_MS + 1) == Collected(0, 1)
    assert collect(store, state, NOW_MS + DAY_MS + 1) == Collected()
    after = archived_states(store)[PARTITION]
    assert after.removed == ()
    named = {below(state.lineage.root, key) for s in after.segments for key in (s.log_key, s.indexes_key)}
    left = {key for key in store.objects if "/segments/" in key}
    assert left == {*named, below(state.lineage.root, "segments/readme.txt")}
    assert [found.problems for found in verify_archive(store, ManualClock(NOW_MS), deep=True)] == [()]


def test_what_may_be_an_upload_under_way_is_kept_for_a_day_whatever_the_grace_period(tmp_path: Path) -> None:
    store, state = garbage(tmp_path)
    assert collect(store, state, NOW_MS + ORPHAN_MS - 1, grace_ms=0) == Collected(2, 0)


def test_death_at_any_call_leaves_an_archive_that_the_next_run_clears(tmp_path: Path) -> None:
    store, state = garbage(tmp_path)
    objects, times = dict(store.objects), dict(store.modified_ms)
    calls: list[str] = []
    store.before = lambda operation, _key: calls.append(operation)
    collect(store, state, NOW_MS + DAY_MS + 1)
    expected = {key for key in store.objects if "/segments/" in key}
    for dies_at in range(len(calls)):
        store.objects, store.modified_ms = dict(objects), dict(times)
        seen = 0

        def die(_operation: str, _key: str, at: int = dies_at) -> None:
            nonlocal seen
            seen += 1
            if seen > at:
                raise KeyboardInterrupt

        store.before = die
        try:
            collect(store, state, NOW_MS + DAY_MS + 1)
        except KeyboardInterrupt:
            store.before = lambda _operation, _key: None
        assert [found.problems for found in verify_archive(store, ManualClock(NOW_MS))] == [()]
        collect(store, state, NOW_MS + DAY_MS + 1)
        assert {key for key in store.objects if "/segments/" in key} == expected
        assert archived_states(store)[PARTITION].removed == ()


def test_work_files_of_killed_compactions_go_after_a_day_and_nothing_that_is_none(tmp_path: Path) -> None:
    store = MemoryStore()
    part, other = f"staging/{an_id('job')}/00000007-{an_id('attempt')}.part", "staging/orders/0/0/commits/1.json"
    for key in (part, other):
        store.put_if_absent(ObjectKey(key), b"bytes")
        store.modified_ms[key] = NOW_MS
    assert collect_parts(store, orphaned_until_ms(NOW_MS + ORPHAN_MS - 1, 0)) == 0
    assert collect_parts(store, orphaned_until_ms(NOW_MS + ORPHAN_MS, 0)) == 1
    assert set(store.objects) == {other}


def test_an_upload_that_may_be_cleared_away_is_not_gone_on_with(tmp_path: Path) -> None:
    log_dir, store = copy_partitions(tmp_path, PARTITION), MemoryStore()
    key = log_key(0, an_id("one"))
    attempt = Attempt(
        an_id("one"), "root", 0, 10, key, indexes_key(0, an_id("one")), 1, 5, 0, NOW_MS, log_crc32c=crc32c(b"bytes")
    )
    store.put_if_absent(below("root", key), b"bytes")
    (stored_ms,) = store.modified_ms.values()
    with tools_for(log_dir, store, tmp_path / "state") as context:
        for age_ms, expected in ((COMMIT_WITHIN_MS - 1, True), (COMMIT_WITHIN_MS, False)):
            # By the store's clock, whatever this host's says.
            for own_ms in (0, NOW_MS, NOW_MS + 100 * DAY_MS):
                ages = AgeCheck.begin(StoreAt(store, stored_ms + age_ms), ManualClock(own_ms))
                assert resumable(attempt, ages) is expected
        store.gives_times = False
        ages = AgeCheck.begin(store, context.clock)
        assert resumable(attempt, ages), "without times there is no gc"
        store.faults = [Fault("head", nth, FaultKind.REDIRECTED) for nth in range(99)]
        assert not resumable(attempt, ages), "a second upload costs time, no data"
