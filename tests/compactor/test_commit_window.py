"""No commit names objects that `gc` of another process, which knows no journal, may have deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sidecar.archive.actions import Lost
from sidecar.archive.commit import Writer
from sidecar.commits.commit_log import CommitLog
from sidecar.commits.commit_window import COMMIT_WITHIN_MS, ORPHAN_MS, UNASKED_MS, UploadExpired
from sidecar.commits.lineages import find_all_lineages
from sidecar.compaction.rules import CompactionRules
from sidecar.compaction_strategy import Strategy
from sidecar.compactor.archive.compactor import ArchiveCompactor
from sidecar.compactor.archive.plan import CompactionRequest, PartitionCompaction
from sidecar.compactor.gc import collect_garbage
from sidecar.errors import StoreUnavailable
from sidecar.model import ObjectKey
from sidecar.rewriting.local_engine import LocalEngine
from sidecar.runner.context import RunContext
from sidecar.storage.store_clock import PROBE_FOLDER
from sidecar.verify.verify import verify_archive
from tests.compactor.test_groups_before_upload import story
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import MemoryStore
from tests.runner.archives import SETTINGS, WRITER, archived, compact_one, only_state, use
from tests.runner.rig import archive, copy_partitions, set_aside_last, tools_for

HOUR_MS = 3_600_000
RULES = CompactionRules(0)
Sleep = Callable[[ManualClock, int], None]


def both(clock: ManualClock, milliseconds: int) -> None:
    """Hours of work, or of waiting."""
    clock.advance_ms(milliseconds)


def wall_only(clock: ManualClock, milliseconds: int) -> None:
    """The host was suspended."""
    clock._now_ms += milliseconds


def monotonic_only(clock: ManualClock, milliseconds: int) -> None:
    """Somebody set the host's clock back meanwhile."""
    clock._monotonic_s += milliseconds / 1000


def wall_back(clock: ManualClock, milliseconds: int) -> None:
    """The host was suspended, and awoke with a clock that is a second behind."""
    clock._now_ms -= 1000


SLEEPS = [both, wall_only, monotonic_only, wall_back]


class Gc:
    """`gc` by cron: it runs right before each commit is put. `commits`: how often it did."""

    def __init__(self, store: MemoryStore) -> None:
        self.store, self.commits, self._runs = store, 0, False

    def __call__(self, operation: str, key: str) -> None:
        if operation == "put_if_absent" and "/commits/" in key and not self._runs:
            self._runs, self.commits = True, self.commits + 1
            for lineage in find_all_lineages(self.store):
                collect_garbage(
                    self.store,
                    lineage.root,
                    self.store.clock,
                    Writer(-1, 2**31 - 1, "gc by cron"),
                    store_now_ms=self.store.clock.now_ms(),
                    grace_period_ms=ORPHAN_MS,
                )
            self._runs = False


def require_sound(store: MemoryStore) -> None:
    for found in verify_archive(store, store.clock, deep=True):
        assert found.problems == ()


@contextmanager
def calls_go_by(store: MemoryStore, *hooks: Callable[[str, str], None]) -> Iterator[None]:
    def before(operation: str, key: str) -> None:
        for hook in hooks:
            hook(operation, key)

    store.before = before
    yield
    store.before = lambda _operation, _key: None


def test_a_group_that_took_too_long_goes_raw(tmp_path: Path) -> None:
    with story(tmp_path, Strategy.TIMESTAMP, segments=8) as reported:
        store, gc = reported.store, Gc(reported.store)

        def slow(operation: str, key: str) -> None:
            if operation == "upload" and key.endswith(".log"):
                store.clock.advance_ms(9 * HOUR_MS)  # type: ignore[attr-defined]
                reported.site.context.clock.sleep_s(9 * HOUR_MS / 1000)

        with calls_go_by(store, slow, gc):
            report = reported.site.round()
        assert [type(error) for error in report.errors] == [UploadExpired]
        assert gc.commits == 0
        assert reported.site.context.journal.count() == 0
        require_sound(store)
        with calls_go_by(store, slow, gc):
            reported.finish()
        assert reported.generations() == {0}
        require_sound(store)


@contextmanager
def one_segment_left(tmp_path: Path, store: MemoryStore) -> Iterator[tuple[RunContext, Path]]:
    """A partition whose archive lacks the last segment."""
    log_dir = copy_partitions(tmp_path, "orders-0")
    set_aside_last(log_dir / "orders-0", aside := tmp_path / "aside")
    with tools_for(log_dir, store, tmp_path / "state") as context:
        assert archive(context, log_dir, "orders").errors == []
        for path in aside.iterdir():
            path.rename(log_dir / "orders-0" / path.name)
        yield context, log_dir


def after_upload(action: Callable[[], None]) -> Callable[[str, str], None]:
    """Once, when `.indexes` is read back: after the last byte was sent."""
    left, uploaded = [action], set[str]()

    def hook(operation: str, key: str) -> None:
        if operation == "upload":
            uploaded.add(key)
        elif operation == "read" and key in uploaded and left:
            left.pop()()

    return hook


@pytest.mark.parametrize("sleep", SLEEPS)
def test_a_host_that_sleeps_between_upload_and_commit_uploads_again(sleep: Sleep, tmp_path: Path) -> None:
    store_clock = ManualClock(1_700_000_000_000)
    store = MemoryStore(store_clock)
    with one_segment_left(tmp_path, store) as (context, log_dir):
        end_offset, clock = only_state(store).end_offset, context.clock

        def asleep() -> None:
            store_clock.advance_ms(25 * HOUR_MS)
            sleep(clock, 25 * HOUR_MS)  # type: ignore[arg-type]

        with calls_go_by(store, after_upload(asleep), gc := Gc(store)):
            (error,) = archive(context, log_dir, "orders").errors
            assert isinstance(error, UploadExpired)
            assert "older than 12 hours by the store's clock" in str(error)
            assert gc.commits == 0
            assert archive(context, log_dir, "orders").errors == []
        assert gc.commits == 1
        assert only_state(store).end_offset > end_offset
        require_sound(store)


def compact_after(
    store: MemoryStore, tmp_path: Path, confirm: Callable[[ManualClock], None], *, gives_times: bool = True
) -> PartitionCompaction:
    """A compaction on a host with a clock of its own; this happens before its commit."""
    clock = ManualClock(store.clock.now_ms())
    store.gives_times = gives_times
    compactor = ArchiveCompactor(SETTINGS, LocalEngine(), clock, tmp_path, confirm=lambda *_: confirm(clock))
    (result,) = compactor.compact([CompactionRequest(only_state(store).lineage.root, RULES, WRITER)])
    return result


def advance_store(store: MemoryStore, milliseconds: int) -> None:
    assert isinstance(store.clock, ManualClock)
    store.clock.advance_ms(milliseconds)


@pytest.mark.parametrize("sleep", SLEEPS)
@pytest.mark.parametrize("age_ms", [COMMIT_WITHIN_MS - 1, COMMIT_WITHIN_MS, ORPHAN_MS])
def test_a_compaction_is_committed_while_its_objects_are_young(
    age_ms: int, sleep: Sleep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = archived(tmp_path, "orders-0")
    use(monkeypatch, store)
    objects = dict(store.objects)

    def asleep(clock: ManualClock) -> None:
        advance_store(store, age_ms)
        sleep(clock, age_ms)

    with calls_go_by(store, gc := Gc(store)):
        result = compact_after(store, tmp_path, asleep)
    if age_ms < COMMIT_WITHIN_MS:
        assert (result.error, gc.commits) == (None, 1)
    else:
        assert isinstance(result.error, UploadExpired)
        assert "Start a compaction again" in str(result.error)
        assert store.objects == objects, "what was uploaded is removed"
    require_sound(store)


def test_each_try_of_a_compaction_asks_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer is first, and then the host sleeps for a day."""
    store = archived(tmp_path, "orders-0")
    use(monkeypatch, store)
    assert isinstance(store.clock, ManualClock)
    state, left = only_state(store), [True]

    def another_writer(operation: str, key: str) -> None:
        if operation == "put_if_absent" and "/commits/" in key and left:
            left.clear()
            lost = Lost(state.end_offset, state.end_offset + 1, "a test")
            CommitLog(store, ObjectKey(state.lineage.root), store.clock).append([lost], WRITER, state)
            advance_store(store, ORPHAN_MS)

    with calls_go_by(store, another_writer, Gc(store)):
        result = compact_one(store, state, RULES, tmp_path)
    assert isinstance(result.error, UploadExpired)
    assert only_state(store).segments == state.segments
    require_sound(store)


@pytest.mark.parametrize(("left", "shown"), [(None, "is gone"), (b"cut", "has other content than was sent: 3 bytes")])
def test_a_store_without_times_must_show_the_objects_as_they_were_sent(
    left: bytes | None, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = archived(tmp_path, "orders-0")
    use(monkeypatch, store)
    live = {key for key in store.objects if "/segments/" in key}

    def lose(clock: ManualClock) -> None:
        clock.advance_ms(ORPHAN_MS)
        key = min(key for key in store.objects if "/segments/" in key and key not in live)
        del store.objects[key]
        if left is not None:
            store.put_if_absent(key, left)

    result = compact_after(store, tmp_path, lose, gives_times=False)
    assert isinstance(result.error, UploadExpired)
    assert f" {shown}" in str(result.error)
    assert compact_after(store, tmp_path, lambda clock: clock.advance_ms(ORPHAN_MS), gives_times=False).error is None


def test_the_common_path_asks_the_store_nothing(tmp_path: Path) -> None:
    store, probes = MemoryStore(), list[str]()

    def note(_operation: str, key: str) -> None:
        if key.startswith(f"{PROBE_FOLDER}/"):
            probes.append(key)

    with (
        one_segment_left(tmp_path, store) as (context, log_dir),
        calls_go_by(store, note, after_upload(lambda: context.clock.sleep_s(UNASKED_MS / 1000))),
    ):
        assert archive(context, log_dir, "orders").errors == []
    assert probes == []


@pytest.mark.parametrize("stale_ms", [10_000, HOUR_MS])
def test_stale_listings_delay_a_late_commit_and_lose_nothing(stale_ms: int, tmp_path: Path) -> None:
    clock = ManualClock(1_700_000_000_000)
    store = MemoryStore(clock)
    with one_segment_left(tmp_path, store) as (context, log_dir):
        sleep_s = context.clock.sleep_s

        def sleep(seconds: float) -> None:
            sleep_s(seconds)
            clock.sleep_s(seconds)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(context.clock, "sleep_s", sleep)
            end_offset = only_state(store).end_offset
            clock.advance_ms(2 * HOUR_MS)  # What is archived is listed.
            store.listings_stale_ms = stale_ms
            with calls_go_by(store, after_upload(lambda: sleep(2 * UNASKED_MS / 1000)), gc := Gc(store)):
                errors = archive(context, log_dir, "orders").errors
        if stale_ms == HOUR_MS:
            assert [type(error) for error in errors] == [StoreUnavailable]
            assert gc.commits == 0
            assert archive(context, log_dir, "orders").errors == [], "the next upload is fast"
        else:
            assert errors == []
    store.listings_stale_ms = 0
    assert only_state(store).end_offset > end_offset
    require_sound(store)


def uploads_left(store: MemoryStore, tmp_path: Path) -> tuple[Path, set[str]]:
    """The log directory, and the `.log` objects that are complete when a process stops before any `.indexes`."""
    log_dir = copy_partitions(tmp_path, "orders-0")
    with tools_for(log_dir, store, tmp_path / "state") as context:

        def stop(operation: str, key: str) -> None:
            if operation == "upload" and key.endswith(".indexes"):
                context.stop.set()
                raise StoreUnavailable("stopped")

        with calls_go_by(store, stop):
            assert archive(context, log_dir).errors != []
        assert context.journal.count() > 0
    begun = {key for key in store.objects if key.endswith(".log")}
    assert begun
    return log_dir, begun


@pytest.mark.parametrize("is_stale", [True, False])
def test_an_upload_of_unknown_age_is_not_resumed_and_fails_no_turn(is_stale: bool, tmp_path: Path) -> None:
    store = MemoryStore()
    log_dir, begun = uploads_left(store, tmp_path)
    store.listings_stale_ms = 10_000 if is_stale else 0
    with tools_for(log_dir, store, tmp_path / "state") as context:
        assert archive(context, log_dir).errors == []
        assert context.journal.count() == 0
    store.listings_stale_ms = 0
    assert begun.isdisjoint(store.objects) if is_stale else begun <= set(store.objects)
    assert only_state(store).segments
    require_sound(store)


def test_a_resumed_upload_is_as_old_as_its_object(tmp_path: Path) -> None:
    """It was young enough to be resumed. The host sleeps before it goes on with it."""
    store = MemoryStore()
    log_dir, begun = uploads_left(store, tmp_path)
    with tools_for(log_dir, store, tmp_path / "state") as context:
        left = [True]

        def sleep(operation: str, key: str) -> None:
            if operation == "list" and key in begun and left:
                left.clear()
                advance_store(store, ORPHAN_MS)
                context.clock.sleep_s(ORPHAN_MS / 1000)

        with calls_go_by(store, sleep, gc := Gc(store)):
            assert [type(error) for error in archive(context, log_dir).errors] == [UploadExpired]
            assert (gc.commits, left) == (0, [])
            assert archive(context, log_dir).errors == []
    assert begun.isdisjoint(store.objects)
    require_sound(store)
