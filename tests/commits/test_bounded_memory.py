"""What a process remembers does not grow with the archive: a writer keeps the part that local files can be compared with."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import structlog

from sidecar.archive.actions import Add, Remove
from sidecar.archive.checkpoint import encode_checkpoint
from sidecar.archive.state import empty_state, newest_part
from sidecar.clock import SystemClock
from sidecar.commits.archive_view import ArchiveView
from sidecar.commits.attempts import discard_uncommitted, settle_attempts
from sidecar.commits.commit_log import SPARED_MIN, CommitLog
from sidecar.commits.commit_window import ORPHAN_MS
from sidecar.config import load_settings
from sidecar.errors import SettingsError, StagingFull, StoreDenied, StoreUnavailable
from sidecar.host.archive_cache import SEGMENTS_KEPT
from sidecar.host.journal import Attempt, Journal, state_directory
from sidecar.model import ArchivedSegment, FileIdentity, ObjectKey, SegmentFiles
from sidecar.runner import assembly
from sidecar.storage.store_clock import PROBE_FOLDER
from tests.archive.builders import LINEAGE, WRITER, a_compacted, a_segment, after
from tests.commits.commit_logs import checkpoints_every
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import Fault, FaultKind, MemoryStore
from tests.golden import golden
from tests.runner.rig import archived_states, copy_partitions, ranges, rolled_ranges, rounds_over, tools_for
from tests.verifying import verify_partition

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
    with tools_for(copy, store, tmp_path / "state", max_queue=5) as context:
        rounds = rounds_over(context, copy)
        rounds.run_once()
        for base, _ in spans[:5]:
            for file in (copy / "orders-0").glob(f"{base:020d}.*"):
                file.unlink()
        for _ in range(8):
            assert rounds.run_once().errors == []
        remembered = {str(found.topic_partition): found.known.state for found in rounds.checks.archivers}["orders-0"]
    whole = archived_states(store)["orders-0"]
    assert ranges(whole) == spans
    assert remembered is not None
    assert ranges(remembered) == spans[5:]
    found = verify_partition(store, ObjectKey(whole.lineage.root), ManualClock(0), deep=True)
    assert (found.problems, found.orphans) == ((), ())


def test_a_checkpoint_holds_the_whole_state_though_its_writer_did_not(tmp_path: Path) -> None:
    store = MemoryStore()
    log = CommitLog(store, LINEAGE.root, store.clock)
    state = empty_state(LINEAGE)
    with checkpoints_every(10):
        for number in range(15):
            state = newest_part(log.append([Add(a_segment(100 * number))], WRITER, state), 10_000)
    assert len(state.segments) == 1
    read = CommitLog(store, LINEAGE.root, store.clock)
    assert len(read.read().segments) == 15
    assert read.passed_over == []
    assert any("/checkpoints/" in key for key in store.objects)


def test_a_turn_leaves_a_checkpoint_of_the_whole_state_and_reads_nothing_for_it(tmp_path: Path) -> None:
    read: list[str] = []
    copy = copy_partitions(tmp_path, "orders-0")
    store = MemoryStore(before=lambda operation, key: read.append(key) if operation == "read" else None)
    with tools_for(copy, store, tmp_path / "state") as context:
        assert rounds_over(context, copy).run_once().errors == []
    first, *commits = [key for key in read if "/commits/" in key]
    assert first.endswith(f"/{0:020d}.json"), "an archive that seems empty is asked for its first commit"
    once = sorted(set(commits))
    assert commits == [*sorted(2 * once[:-1]), once[-1]], "each after it was put, and before the next one is put"
    spans = rolled_ranges(copy, "orders-0")
    assert len(spans) >= SPARED_MIN
    (key,) = [key for key in store.objects if "/checkpoints/" in key]
    state = archived_states(store)["orders-0"]
    assert key.endswith(f"/{len(spans) - 1:020d}.json")
    assert store.objects[key] == encode_checkpoint(state)


def test_of_a_long_local_log_too_only_the_newest_segments_are_remembered(tmp_path: Path) -> None:
    copy, store = copy_partitions(tmp_path, "orders-0"), MemoryStore()
    with tools_for(copy, store, tmp_path / "state") as context:
        for _ in range(2):
            rounds = rounds_over(context, copy)
            assert rounds.run_once().errors == []
            (archiver,) = rounds.checks.archivers
            assert archiver.known.state is not None
            assert ranges(archiver.known.state) == rolled_ranges(copy, "orders-0")[-SEGMENTS_KEPT:]


def test_what_is_known_of_an_archive_is_kept_where_attempts_are_left(tmp_path: Path) -> None:
    copy, store = copy_partitions(tmp_path, "orders-0"), MemoryStore()
    with tools_for(copy, store, tmp_path / "state") as context:
        rounds_over(context, copy).run_once()
        state = archived_states(store)["orders-0"]
        keys = ObjectKey("segments/left.log"), ObjectKey("segments/left.indexes")
        context.journal.begin(Attempt("left", state.lineage.root, 10**9, 10**9 + 1, *keys, 1, 1, 1, 1, 5, 10**6))
        rounds = rounds_over(context, copy)
        rounds.run_once()
        (archiver,) = rounds.checks.archivers
        assert archiver.known.state == state, "its commit number is not taken yet: the attempt stays"
        assert len(state.segments) > SEGMENTS_KEPT


def test_small_archives_get_a_checkpoint_soon_and_large_ones_no_more_than_before() -> None:
    store = MemoryStore()
    log, state = CommitLog(store, LINEAGE.root, store.clock), empty_state(LINEAGE)
    left: list[int] = []
    with checkpoints_every(20):
        for number in range(150):
            state = log.append([Add(a_segment(100 * number))], WRITER, state)
            log.leave_checkpoint(state)
            if log.newest_checkpoint not in (-1, *left[-1:]):
                left.append(log.newest_checkpoint)
    assert left[:6] == [7, 15, 23, 31, 41, 54]
    assert [later - earlier for earlier, later in pairwise(left)][-2:] == [20, 20]
    assert CommitLog(store, LINEAGE.root, store.clock).read() == state


def test_checkpoints_that_always_fail_cost_less_and_less(tmp_path: Path) -> None:
    store = MemoryStore(faults=[Fault("put_if_absent", n, FaultKind.DENIED, "/checkpoints/") for n in range(100)])
    log, state = CommitLog(store, LINEAGE.root, store.clock), empty_state(LINEAGE)
    with checkpoints_every(10), structlog.testing.capture_logs() as logs:
        for number in range(50):
            state = log.append([Add(a_segment(100 * number))], WRITER, state)
    assert 3 <= [entry["event"] for entry in logs].count("checkpoint_not_written") <= 9


def an_attempt(segment: ArchivedSegment, commit_number: int | None = None) -> Attempt:
    return Attempt(
        segment_id=segment.segment_id,
        root=LINEAGE.root,
        base_offset=segment.base_offset,
        end_offset=segment.end_offset,
        log_key=segment.log_key,
        indexes_key=segment.indexes_key,
        inode=1,
        size_bytes=5,
        mtime_ns=1,
        begun_ms=1,
        commit_number=commit_number,
    )


def stored(store: MemoryStore, segment: ArchivedSegment) -> set[ObjectKey]:
    keys = {ObjectKey(f"{LINEAGE.root}/{key}") for key in (segment.log_key, segment.indexes_key)}
    for key in keys:
        store.put_if_absent(key, b"bytes")
    return keys


def test_an_attempt_below_what_is_remembered_is_never_discarded(tmp_path: Path) -> None:
    committed = a_segment(0)
    state = after(empty_state(LINEAGE), [Add(committed)], [Add(a_segment(100))], [Add(a_segment(200))])
    root, store = state.lineage.root, MemoryStore()
    keys = stored(store, committed)
    with tools_for(LOGS, store, tmp_path) as context:
        # As a journal on a full disk leaves it: committed, but not ended.
        context.journal.begin(an_attempt(committed))
        settle_attempts(context, newest_part(state, 250), ())
        assert keys <= set(store.objects)
        settle_attempts(context, state, ())
        assert context.journal.attempts(root) == ()
    assert keys <= set(store.objects)


@pytest.mark.parametrize("kind", [FaultKind.DENIED, FaultKind.REDIRECTED])
def test_an_attempt_whose_age_the_store_does_not_tell_is_not_resumed(kind: FaultKind, tmp_path: Path) -> None:
    begun, store = a_segment(0), MemoryStore()
    keys = stored(store, begun)
    attempt = replace(an_attempt(begun), log_crc32c=1)
    log = FileIdentity(Path("/logs"), "0.log", attempt.inode, attempt.size_bytes, attempt.mtime_ns)
    planned = SegmentFiles(LINEAGE.topic_partition, Path("/logs"), 0, begun.end_offset, log, None, None, None, None)
    store.faults = [Fault("put_if_absent", nth, kind, PROBE_FOLDER) for nth in range(99)]
    with tools_for(LOGS, store, tmp_path) as context:
        context.journal.begin(attempt)
        assert attempt.is_of(planned)
        assert settle_attempts(context, empty_state(LINEAGE), [planned]) == {}
    assert not keys & set(store.objects)


@pytest.mark.parametrize("is_named", [True, False])
def test_what_landed_unheard_and_was_compacted_since_stays_for_its_readers(
    is_named: bool, tmp_path: Path, expect_damage: Callable[[str], None]
) -> None:
    if is_named:
        expect_damage("missing_object")  # Of the segments that are only in the commits.
    first, unheard, copy = a_segment(0), a_segment(100), a_compacted(100, 200)
    store = MemoryStore()
    commits, state = CommitLog(store, LINEAGE.root, store.clock), empty_state(LINEAGE)
    keys = stored(store, unheard)
    named = unheard if is_named else a_segment(100, name="another's")
    for actions in (
        [Add(first)],
        [Add(named)],
        [Remove(named.segment_id, 100, 200, "compacted", keep_ms=60_000), Add(copy)],
    ):
        state = commits.append(actions, WRITER, state)
    with tools_for(LOGS, store, tmp_path) as context:
        context.journal.begin(an_attempt(unheard))
        context.journal.committing(unheard.segment_id, 1)
        settle_attempts(context, state, ())
        assert context.journal.attempts(LINEAGE.root) == ()
    assert (keys <= set(store.objects)) is is_named


def test_what_a_restored_journal_calls_an_upload_and_was_compacted_since_stays_for_an_undo(tmp_path: Path) -> None:
    """The backup is from the moment between the upload and the commit: it has no number of a commit."""
    uploaded, store = a_segment(0), MemoryStore()
    removed = Remove(uploaded.segment_id, 0, 100, "compacted", keep_ms=60_000)
    state = after(empty_state(LINEAGE), [Add(uploaded)], [removed, Add(a_compacted(0, 100))])
    keys = stored(store, uploaded)
    with tools_for(LOGS, store, tmp_path) as context:
        context.journal.begin(an_attempt(uploaded))
        settle_attempts(context, state, ())
        assert context.journal.attempts(LINEAGE.root) == ()
    assert keys <= set(store.objects)


@pytest.mark.parametrize("is_readable", [True, False])
def test_where_the_store_is_unfit_what_a_restored_journal_calls_an_upload_stays_if_a_commit_names_it(
    is_readable: bool, tmp_path: Path
) -> None:
    def denied(operation: str, _key: str) -> None:
        if operation != "delete":
            raise StoreDenied("403")

    copy, store = copy_partitions(tmp_path, "orders-0"), MemoryStore()
    with tools_for(copy, store, tmp_path / "state") as context:
        rounds_over(context, copy).run_once()
        state, left = archived_states(store)["orders-0"], a_segment(10**6)
        for segment in (state.segments[0], left):
            context.journal.begin(replace(an_attempt(segment), root=state.lineage.root))
        begun = ObjectKey(f"{state.lineage.root}/{left.log_key}")
        before = dict(store.objects)
        store.put_if_absent(begun, b"bytes")
        if not is_readable:
            store.before = denied
        discard_uncommitted(context)
        store.before = lambda _operation, _key: None
        assert store.objects == before | ({} if is_readable else {begun: b"bytes"})


@pytest.mark.parametrize(("age_ms", "is_left"), [(ORPHAN_MS - 60_000, True), (ORPHAN_MS + 60_000, False)])
def test_a_start_ends_old_attempts_of_topics_that_were_deleted(
    age_ms: int, is_left: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No task will: nothing of the topic is in the log directories, and no broker leads it."""
    uploaded, store, clock = a_segment(0), MemoryStore(), SystemClock()
    keys = stored(store, uploaded)
    given = {"store.url": "s3://bucket/archive", "broker.log_dirs": [LOGS], "run.state_dir": tmp_path}
    monkeypatch.setattr(assembly, "open_store", lambda *_: store)
    settings = load_settings(flags=given).settings
    with closing(Journal(state_directory(tmp_path, store.url))) as journal:
        journal.begin(replace(an_attempt(uploaded), begun_ms=clock.now_ms() - age_ms))
    with assembly.open_tools(settings, repeats=True) as context:
        assert context.journal.count() == int(is_left)
    assert bool(keys & store.objects.keys()) is is_left


@pytest.mark.parametrize("is_slow", [True, False])
def test_a_start_does_not_wait_for_long_to_end_old_attempts(is_slow: bool, tmp_path: Path) -> None:
    """Nothing is pinned meanwhile. Each read of an archive may take minutes, until its tries are used up."""
    store, roots, asked = MemoryStore(), {f"cluster/deleted/{number}/0" for number in range(9)}, set[str]()
    with tools_for(LOGS, store, tmp_path) as context:

        def answer(operation: str, key: str) -> None:
            if operation == "list":
                asked.update(root for root in roots if key.startswith(f"{root}/"))
                context.clock.advance_ms(5_000)  # type: ignore[attr-defined]
                if not is_slow:
                    raise StoreUnavailable("no answer")

        for root in roots:
            uploaded = a_segment(0, name=root)
            context.journal.begin(replace(an_attempt(uploaded), root=root))
        store.before = answer
        discard_uncommitted(context, within_s=5.0)
        assert len(asked) == 1
        assert context.journal.count() == len(roots) - is_slow
        store.before = lambda _operation, _key: None
        discard_uncommitted(context, within_s=5.0)
        assert context.journal.count() == 0


def test_a_checkpoint_that_the_store_refuses_for_its_settings_stops_nothing(tmp_path: Path) -> None:
    def refuse(operation: str, key: str) -> None:
        if operation == "put_if_absent" and "/checkpoints/" in key:
            raise SettingsError("PutObject: KMS.NotFoundException (400); correct store.s3.kms_key_id")

    copy, store = copy_partitions(tmp_path, "orders-0"), MemoryStore(before=refuse)
    with tools_for(copy, store, tmp_path / "state") as context, structlog.testing.capture_logs() as logs:
        assert rounds_over(context, copy).run_once().errors == []
    assert ranges(archived_states(store)["orders-0"]) == rolled_ranges(copy, "orders-0")
    assert [log["log_level"] for log in logs if log["event"] == "checkpoint_not_written"] == ["warning"]


def test_a_journal_that_fails_behind_the_last_commit_stops_its_partition_and_not_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy, store = copy_partitions(tmp_path, "orders-0", "append-time-0"), MemoryStore()
    rest = ArchiveView.rest

    def fails(known: ArchiveView) -> None:
        if known.opened()[0].lineage.topic_partition.topic == "orders":
            raise StagingFull("journal.sqlite cannot be written")
        rest(known)

    monkeypatch.setattr(ArchiveView, "rest", fails)
    with tools_for(copy, store, tmp_path / "state") as context:
        report = rounds_over(context, copy).run_once()
        assert [type(error) for error in report.errors] == [StagingFull]
        assert not context.stop.is_set()
    assert {name: ranges(state) for name, state in archived_states(store).items()} == {
        name: rolled_ranges(copy, name) for name in ("orders-0", "append-time-0")
    }
