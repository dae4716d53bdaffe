"""A commit whose outcome is unknown: no object that it may name is deleted, by no writer and after no class of error."""

from __future__ import annotations

from pathlib import Path

import pytest

from sidecar.archive.keys import below
from sidecar.archive.state import PartitionState
from sidecar.compaction.rules import CompactionRules
from sidecar.errors import (
    ObjectDamaged,
    ObjectMissing,
    OutcomeUnknown,
    SettingsError,
    SidecarError,
    StoreDenied,
    StoreMissing,
    StoreUnavailable,
    StoreUnsafe,
)
from sidecar.model import ObjectKey
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import MemoryStore
from tests.golden import golden
from tests.runner.archives import NOW_MS, archived, compact_one, only_state, sound, use
from tests.runner.rig import archive, archived_states, copy_partitions, ranges, rolled_ranges, tools_for
from tests.verifying import verify_partition

ERRORS = [
    StoreUnavailable("503"),
    OutcomeUnknown("no answer"),
    StoreDenied("403: expired credentials"),
    SettingsError("301: another region"),
    StoreMissing("no such bucket"),
    StoreUnsafe("501"),
    ObjectDamaged("another checksum"),
    ObjectMissing("404"),
]
TOPIC, PARTITION = "append-time", "append-time-0"


class Doubtful(MemoryStore):
    """Carries out the puts of commits; reading one back, once `error` is set, fails for `failing_ms`."""

    error: SidecarError | None = None
    failing_ms = 10**9
    _until_ms = -1

    def put_if_absent(self, key: ObjectKey, body: bytes) -> None:
        super().put_if_absent(key, body)
        if "/commits/" in key and self.error is not None:
            self._until_ms = self.clock.now_ms() + self.failing_ms
            raise self.error

    def read(self, key: ObjectKey, position: int = 0, size_bytes: int | None = None, *, whole: bool = False) -> bytes:
        if "/commits/" in key and self.error is not None and self.clock.now_ms() < self._until_ms:
            raise self.error
        return super().read(key, position, size_bytes, whole=whole)


def named(state: PartitionState) -> set[str]:
    return {below(state.lineage.root, key) for s in state.segments for key in (s.log_key, s.indexes_key)}


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("failing_ms", [30_000, 10**9])
def test_a_compaction_keeps_what_its_commit_may_name(
    error: SidecarError, failing_ms: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After half a minute of errors it finds its commit; after more it says that the outcome is unknown."""
    source, store = archived(tmp_path, "orders-0"), Doubtful(ManualClock(NOW_MS))
    store.objects, store.modified_ms = source.objects, source.modified_ms
    use(monkeypatch, store)
    before = only_state(store)
    store.error, store.failing_ms = error, failing_ms
    result = compact_one(store, before, CompactionRules(NOW_MS), tmp_path)
    store.error = None
    after = only_state(store)
    assert after.next_number == before.next_number + 1, "the commit is stored"
    assert named(after) <= set(store.objects)
    if failing_ms == 30_000:
        assert (result.error, result.commit_number) == (None, before.next_number)
    else:
        assert result.is_unknown
        assert "the outcome of this write is unknown" in str(result.error) or isinstance(result.error, StoreUnsafe)
    sound(store)


def test_a_compaction_that_was_refused_before_its_put_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = archived(tmp_path, "orders-0")
    use(monkeypatch, store)
    before, objects = only_state(store), set(store.objects)

    def deny(operation: str, key: str) -> None:
        if operation == "read" and "/commits/" in key and set(store.objects) - objects:
            raise StoreDenied("403 before the put")

    store.before = deny
    result = compact_one(store, before, CompactionRules(NOW_MS), tmp_path)
    assert isinstance(result.error, StoreDenied)
    assert not result.is_unknown
    assert set(store.objects) == objects


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("restarts", [False, True])
def test_an_upload_keeps_what_its_commit_may_name(error: SidecarError, restarts: bool, tmp_path: Path) -> None:
    log_dir, store = golden("4.3.0") / "logs", Doubtful()
    with tools_for(log_dir, store, tmp_path) as context:
        store.error = error
        found = archive(context, log_dir, TOPIC).errors
        assert [isinstance(one, OutcomeUnknown | StoreUnsafe) for one in found] == [True]
        store.error = None
        assert named(archived_states(store)[PARTITION]) <= set(store.objects)
        if not restarts:
            assert archive(context, log_dir, TOPIC).errors == []
    if restarts:
        with tools_for(log_dir, store, tmp_path) as context:
            assert archive(context, log_dir, TOPIC).errors == []
    state = archived_states(store)[PARTITION]
    assert ranges(state) == rolled_ranges(log_dir, PARTITION)
    found_whole = verify_partition(store, state.lineage.root, ManualClock(0), deep=True)
    assert (found_whole.problems, found_whole.orphans) == ((), ())


def test_a_delayed_put_may_still_land_until_its_number_is_taken(tmp_path: Path) -> None:
    """The store carries out the first commit only after a second attempt was uploaded: the first one's objects are still there."""
    log_dir, store = golden("4.3.0") / "logs", MemoryStore()
    delayed: list[tuple[ObjectKey, bytes]] = []
    put = store.put_if_absent

    def lose(key: ObjectKey, body: bytes) -> None:
        if "/commits/" in key and store.clock.monotonic_s() < 10:
            delayed[:] = [(key, body)]
            raise StoreDenied("403, but a proxy still sends it")
        if "/commits/" in key and delayed:
            put(*delayed.pop())
        put(key, body)

    with tools_for(log_dir, store, tmp_path) as context, pytest.MonkeyPatch.context() as patched:
        patched.setattr(store, "put_if_absent", lose)
        (error,) = archive(context, log_dir, TOPIC).errors
        assert isinstance(error, OutcomeUnknown)
        store.clock.sleep_s(60)
        assert archive(context, log_dir, TOPIC).errors == []
    state = archived_states(store)[PARTITION]
    assert ranges(state) == rolled_ranges(log_dir, PARTITION)
    found = verify_partition(store, state.lineage.root, ManualClock(0), deep=True)
    assert (found.problems, found.orphans) == ((), ())


def test_who_loses_behind_stale_listings_uploads_no_segment_twice(tmp_path: Path) -> None:
    """Listings are 10 s stale: they show nothing of what the other writer has just archived."""
    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore(ManualClock(NOW_MS))
    with tools_for(log_dir, store, tmp_path / "winner") as context:
        assert archive(context, log_dir, "orders").errors == []
    winner = only_state(store)
    assert len(winner.segments) > 2
    store.listings_stale_ms = 10_000
    uploads: list[str] = []
    store.before = lambda operation, key: uploads.append(key) if operation == "upload" else None
    with tools_for(log_dir, store, tmp_path / "loser") as context:
        report = archive(context, log_dir, "orders")
    assert report.errors == []
    bases = [key.rpartition("/")[2][:20] for key in uploads if key.endswith(".log")]
    assert len(bases) == len(set(bases)), "each segment was uploaded once at most"
    assert len(bases) <= context.policy.uploads_ahead
    store.listings_stale_ms = 0
    assert only_state(store) == winner
    assert verify_partition(store, winner.lineage.root, ManualClock(0)).orphans == ()
