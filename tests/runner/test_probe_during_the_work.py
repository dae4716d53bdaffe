"""`backfill` uploads while its probe goes on, and commits only when that has passed."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import pytest

from sidecar.config import Settings
from sidecar.errors import StoreDenied, StoreUnavailable, StoreUnsafe
from sidecar.host.journal import Journal
from sidecar.model import ObjectKey
from sidecar.runner import assembly
from sidecar.runner.backfill import BackfillReport, backfill
from sidecar.storage.probe import probing_store
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import Fault, FaultKind, MemoryStore
from tests.runner.rig import archived_states, copy_partitions, ranges, rolled_ranges

PARTITION = "orders-0"
WAIT_S = 30.0


class RacyStore(MemoryStore):
    """Its races end after the first upload, with a second winner where `is_unsafe`. `committed_before`: the races had ended."""

    def __init__(self, *, is_unsafe: bool) -> None:
        super().__init__()
        self.is_unsafe = is_unsafe
        self.uploaded = Event()
        self.committed_before = False

    def put_if_absent(self, key: ObjectKey, body: bytes) -> None:
        """See `ObjectStore`."""
        is_race = "/race-" in key
        if is_race:
            assert self.uploaded.wait(WAIT_S), "the upload waits for the races"
        elif "/commits/" in key and any("/race-" in other for other in self.objects):
            self.committed_before = True
        if is_race and self.is_unsafe:
            self.objects[key] = body
        else:
            super().put_if_absent(key, body)

    def upload(self, key: ObjectKey, source: object) -> object:  # type: ignore[override]
        """See `ObjectStore`."""
        sent_crc32c = super().upload(key, source)  # type: ignore[arg-type]
        if key.endswith(".log"):
            self.uploaded.set()
        return sent_crc32c


def _backfill(store: MemoryStore, log_dir: Path, state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> BackfillReport:
    monkeypatch.setattr(assembly, "open_store", lambda *_: store)
    settings = {
        "store": {"url": "s3://bucket/archive"},
        "run": {"state_dir": state_dir},
        "broker": {"log_dirs": [log_dir], "assume_leader": True, "settle_ms": 0, "snapshot_grace_ms": 0},
    }
    return backfill(Settings.model_validate(settings), dry_run=False)


def _unfinished(state_dir: Path) -> int:
    (directory,) = (path for path in state_dir.iterdir() if path.is_dir())
    journal = Journal(directory)
    try:
        return journal.count()
    finally:
        journal.close()


def test_a_commit_waits_for_the_probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, log_dir = RacyStore(is_unsafe=False), copy_partitions(tmp_path, PARTITION)
    assert _backfill(store, log_dir, tmp_path / "state", monkeypatch).exit_code == 0
    assert not store.committed_before
    assert ranges(archived_states(store)[PARTITION]) == rolled_ranges(log_dir, PARTITION)


def test_nothing_is_committed_where_two_writers_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was uploaded is removed, as nothing of it may be committed."""
    store, log_dir = RacyStore(is_unsafe=True), copy_partitions(tmp_path, PARTITION)
    with pytest.raises(StoreUnsafe, match=r"not fit for an archive: create-only put under a race .*[234] succeeded"):
        _backfill(store, log_dir, tmp_path / "state", monkeypatch)
    assert store.uploaded.is_set()
    assert store.objects == {}
    assert _unfinished(tmp_path / "state") == 0
    store.is_unsafe = False
    assert _backfill(store, log_dir, tmp_path / "state", monkeypatch).exit_code == 0
    assert ranges(archived_states(store)[PARTITION]) == rolled_ranges(log_dir, PARTITION)


def test_what_the_store_refuses_is_said_before_anything_is_uploaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore(faults=[Fault("put_if_absent", nth, FaultKind.DENIED) for nth in range(9)])
    with pytest.raises(StoreDenied):
        _backfill(store, copy_partitions(tmp_path, PARTITION), tmp_path / "state", monkeypatch)
    assert not any("/segments/" in key for key in store.objects)


class SilentStore(MemoryStore):
    """Its races get no answer until `answers` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.answers = Event(), Event()

    def put_if_absent(self, key: ObjectKey, body: bytes) -> None:
        """See `ObjectStore`."""
        if "/race-" in key:
            self.asked.set()
            assert self.answers.wait(WAIT_S)
            raise StoreUnavailable("no answer")
        super().put_if_absent(key, body)


def _interrupted(store: SilentStore, interrupt: BaseException, stop: Event) -> None:
    with probing_store(store, single_writer=False, clock=ManualClock(), patience_s=WAIT_S, stop=stop):
        assert store.asked.wait(WAIT_S)
        raise interrupt


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt(), SystemExit(143), ZeroDivisionError("a bug")])
def test_an_interrupt_or_a_fault_does_not_wait_for_the_probe(interrupt: BaseException) -> None:
    store, stop = SilentStore(), Event()
    with pytest.raises(type(interrupt)) as raised:
        _interrupted(store, interrupt, stop)
    assert raised.value is interrupt
    assert not store.answers.is_set()
    stop.set()
    store.answers.set()


def _stopped(store: SilentStore, clock: ManualClock, stop: Event) -> None:
    with probing_store(store, single_writer=False, clock=clock, patience_s=WAIT_S, stop=stop):
        assert store.asked.wait(WAIT_S)
        stop.set()
        store.answers.set()


def test_once_it_is_stopped_a_store_that_does_not_answer_is_not_asked_again() -> None:
    clock = ManualClock()
    with pytest.raises(StoreUnavailable, match="no answer"):
        _stopped(SilentStore(), clock, Event())
    assert clock.monotonic_s() < WAIT_S / 2
