"""The store's clock: what counts as a time, and how far this host's clock is from it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from structlog.testing import capture_logs

from sidecar.clock import SystemClock
from sidecar.errors import OutcomeUnknown, SettingsError, SidecarError, StoreUnavailable, StoreUnsupported
from sidecar.model import ObjectKey
from sidecar.storage.opening import open_store
from sidecar.storage.store_clock import (
    CHECK_S,
    DIFFERENCE_MS_MAX,
    ClockWatch,
    is_old,
    milliseconds_of,
    read_store_clock,
)
from sidecar.store_settings import StoreSettings
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import Fault, FaultKind, MemoryStore
from tests.storage.files_in_memory import FilesInMemory

STORE_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        (datetime.fromtimestamp(STORE_MS / 1000, UTC), STORE_MS),
        (datetime.fromtimestamp(STORE_MS / 1000, UTC).replace(tzinfo=None), STORE_MS),
        (STORE_MS / 1000, STORE_MS),
        (0, None),
        (0.0, None),
        (datetime(1970, 1, 1, tzinfo=UTC), None),
        (datetime(1, 1, 1, tzinfo=UTC), None),
        ("2026-11-23", None),
        (None, None),
    ],
)
def test_a_time_or_none_and_none_is_never_old(reported: object, expected: int | None) -> None:
    """1970 and year 1 are what stores without times say. Both were "infinitely old"."""
    assert milliseconds_of(reported) == expected
    assert is_old(milliseconds_of(reported), 2 * STORE_MS) is (expected is not None)


def test_a_file_system_without_times_says_none(monkeypatch: pytest.MonkeyPatch) -> None:
    store = FilesInMemory()
    store.put_if_absent(ObjectKey("a/b"), b"body")
    assert [facts.modified_ms is not None for facts in store.list("a/")] == [True]
    info, find = MemoryFileSystem.info, MemoryFileSystem.find
    without = lambda details: {name: value for name, value in details.items() if name != "created"}  # noqa: E731
    monkeypatch.setattr(MemoryFileSystem, "info", lambda self, path, **more: without(info(self, path, **more)))
    monkeypatch.setattr(
        MemoryFileSystem,
        "find",
        lambda self, path, **more: {name: without(found) for name, found in find(self, path, **more).items()},
    )
    facts = store.head(ObjectKey("a/b"))
    assert facts is not None
    assert facts.modified_ms is None
    assert [facts.modified_ms for facts in store.list("a/")] == [None]
    with pytest.raises(StoreUnsupported, match="no modification times"):
        read_store_clock(store, SystemClock())


def test_a_directory_says_its_own_time(tmp_path: Path) -> None:
    store = open_store(StoreSettings(url=str(tmp_path)))
    reading = read_store_clock(store, SystemClock())
    assert not reading.differs
    assert list(store.list("")) == []


@pytest.mark.parametrize(
    ("ahead_ms", "text", "differs"),
    [
        (0, "agrees", False),
        (900, "agrees", False),
        (1_000 + DIFFERENCE_MS_MAX, "60 s ahead of", False),
        (1_001 + DIFFERENCE_MS_MAX, "60 s ahead of", True),
        (-1 - DIFFERENCE_MS_MAX, "60 s behind", True),
    ],
)
def test_how_far_the_clocks_are_apart(ahead_ms: int, text: str, differs: bool) -> None:
    store = MemoryStore(ManualClock(STORE_MS))
    reading = read_store_clock(store, ManualClock(STORE_MS + ahead_ms))
    assert (reading.store_ms, reading.differs) == (STORE_MS, differs)
    assert text in str(reading)
    assert store.objects == {}


@pytest.mark.parametrize("kind", [FaultKind.LOST_ANSWER, FaultKind.LOST_REQUEST])
def test_a_lost_answer_to_the_put_is_settled_by_the_listing(kind: FaultKind) -> None:
    store = MemoryStore(ManualClock(STORE_MS), faults=[Fault("put_if_absent", 0, kind)])
    if kind is FaultKind.LOST_ANSWER:
        assert read_store_clock(store, ManualClock(STORE_MS)).store_ms == STORE_MS
    else:
        with pytest.raises(StoreUnavailable, match=r"^_probe/.*put_if_absent lost on purpose$"):
            read_store_clock(store, ManualClock(STORE_MS))
    assert store.objects == {}


def test_run_warns_once_when_the_clocks_begin_to_differ_and_says_when_they_agree() -> None:
    store_clock, own = ManualClock(STORE_MS), ManualClock(STORE_MS)
    store = MemoryStore(store_clock)
    watch = ClockWatch(store, own)
    events = []
    for store_ahead_ms in (0, 0, 120_000, 0, 0, -120_000, 0):
        store_clock.advance_ms(store_ahead_ms)
        with capture_logs() as logs:
            watch.look()
        events.append([(entry["event"], entry["log_level"]) for entry in logs])
        for clock in (own, store_clock):
            clock.sleep_s(CHECK_S)
    warned, agrees = [("clock_differs_from_store", "warning")], [("clock_agrees_with_store", "info")]
    assert events == [[], [], warned, [], [], agrees, []]


@pytest.mark.parametrize("kind", [FaultKind.UNAVAILABLE, FaultKind.DENIED, FaultKind.REDIRECTED])
def test_a_reading_counts_though_its_object_cannot_be_deleted(kind: FaultKind) -> None:
    store = MemoryStore(ManualClock(STORE_MS), faults=[Fault("delete", 0, kind)])
    assert read_store_clock(store, ManualClock(STORE_MS)).store_ms == STORE_MS


@pytest.mark.parametrize("error", [OutcomeUnknown, SettingsError])
def test_a_store_that_fails_ends_no_round(error: type[SidecarError]) -> None:
    store = MemoryStore()

    def fail(_operation: str, _key: str) -> None:
        raise error("lost, or redirected")

    store.before = fail
    watch = ClockWatch(store, ManualClock(STORE_MS))
    with capture_logs() as logs:
        watch.look()
    assert logs == []
