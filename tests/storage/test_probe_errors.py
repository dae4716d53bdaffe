"""A probe decides on definite answers only, waits for the others, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from structlog.testing import capture_logs

from sidecar.errors import (
    ObjectDamaged,
    OutcomeUnknown,
    SidecarError,
    StoreDenied,
    StoreError,
    StoreUnavailable,
    StoreUnsafe,
    StoreUnsupported,
)
from sidecar.model import ObjectKey
from sidecar.ports import ObjectFacts, OnFacts, UnfinishedUpload
from sidecar.storage.probe import probe_store
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import Fault, FaultKind, MemoryStore

OPERATIONS = ("put_if_absent", "read", "list", "upload", "head", "stream", "delete", "unfinished_uploads")


def refusing(error: BaseException, times: int = 1_000_000, operation: str = "") -> Callable[[str, str], None]:
    """Fails the next `times` calls."""
    left = times

    def refuse(asked: str, _key: str) -> None:
        nonlocal left
        if left > 0 and asked in (operation or asked):
            left -= 1
            raise error

    return refuse


def test_each_object_is_deleted_once() -> None:
    """In a versioned bucket each delete leaves a marker."""
    store, deleted = MemoryStore(), list[str]()
    store.before = lambda operation, key: deleted.append(key) if operation == "delete" else None
    probe_store(store, clock=ManualClock())
    assert len(deleted) == len(set(deleted)) > 0
    assert store.objects == {}


@pytest.mark.parametrize("kind", [StoreUnavailable, StoreDenied])
def test_each_try_fails_in_the_same_words(kind: type[SidecarError]) -> None:
    def refuse(operation: str, key: str) -> None:
        raise kind(f"{operation} {key} at s3://bucket: no")

    store, texts = MemoryStore(), set()
    store.before = refuse
    for _ in range(2):
        with pytest.raises(kind) as caught:
            probe_store(store, clock=ManualClock())
        texts.add(str(caught.value))
    (text,) = texts
    assert "_probe/small-1 at s3://bucket: no" in text


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("error", [StoreUnavailable("503 SlowDown"), OutcomeUnknown("the answer was lost")])
def test_one_error_at_any_call_refuses_no_store(error: SidecarError, operation: str) -> None:
    store, clock = MemoryStore(), ManualClock()
    store.before = refusing(error, 1, operation)
    with capture_logs():
        assert probe_store(store, clock=clock, patience_s=30) == {}
    assert store.objects == {}


@pytest.mark.parametrize("operation", OPERATIONS[:6])
@pytest.mark.parametrize("error", [ObjectDamaged("a byte was changed"), StoreError("no XML")])
def test_one_answer_that_was_damaged_on_the_way_is_no_answer(error: SidecarError, operation: str) -> None:
    store = MemoryStore()
    store.before = refusing(error, 1, operation)
    assert probe_store(store, clock=ManualClock()) == {}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(
    ("error", "times"),
    # The probe itself asks four times after a lost answer: the fault ends with that.
    [(StoreUnavailable("503"), 1), (OutcomeUnknown("lost"), 4), (StoreDenied("403"), 1), (KeyboardInterrupt(), 1)],
)
def test_a_probe_that_fails_anywhere_leaves_nothing(error: BaseException, times: int, operation: str) -> None:
    store = MemoryStore()
    store.before = refusing(error, times, operation)
    with capture_logs(), suppress(type(error)):
        probe_store(store, clock=ManualClock())
    assert store.objects == {}


def test_unfinished_uploads_of_a_probe_that_failed_are_aborted() -> None:
    store = MemoryStore()

    def begin_and_fail(operation: str, key: str) -> None:
        if operation == "upload":
            store.unfinished.append(UnfinishedUpload(ObjectKey(key), "begun", store.clock.now_ms()))
            raise StoreUnavailable("503")

    store.before = begin_and_fail
    with pytest.raises(StoreUnavailable):
        probe_store(store, clock=ManualClock())
    assert (store.objects, store.unfinished) == ({}, [])


def test_a_command_waits_for_a_store_for_a_while_and_then_says_that_it_did_not_answer() -> None:
    store, clock = MemoryStore(), ManualClock()
    store.before = refusing(StoreUnavailable("connection refused"))
    with capture_logs() as logs, pytest.raises(StoreUnavailable, match="connection refused") as caught:
        probe_store(store, clock=clock, patience_s=30)
    assert caught.value.exit_code == 6
    assert "single_writer" not in str(caught.value)
    assert 15 <= clock.monotonic_s() <= 30
    assert {entry["event"] for entry in logs} == {"waiting_for_store"}


def test_a_store_that_comes_back_is_examined_and_nothing_is_left() -> None:
    store, clock = MemoryStore(), ManualClock()

    def away(_operation: str, key: str) -> None:
        if clock.monotonic_s() < 20:
            raise StoreUnavailable("black hole")

    store.before = away
    with capture_logs():
        probe_store(store, clock=clock, patience_s=30)
    assert store.objects == {}


@pytest.mark.parametrize(
    "error", [StoreUnsupported("501 NotImplemented"), StoreUnsafe("no"), ObjectDamaged("bad"), StoreError("400")]
)
def test_a_promise_is_advised_only_where_two_writers_were_seen_to_win(error: SidecarError) -> None:
    store = MemoryStore()
    puts = 0

    def second_fails(operation: str, _key: str) -> None:
        nonlocal puts
        if operation == "put_if_absent":
            puts += 1
            if puts > 1:
                raise error

    store.before = second_fails
    with pytest.raises(StoreUnsafe, match="create-only put") as caught:
        probe_store(store, clock=ManualClock())
    assert "single_writer" not in str(caught.value)
    store = MemoryStore(ignore_if_none_match=True)
    with pytest.raises(StoreUnsafe, match="set single_writer: true to promise"):
        probe_store(store, clock=ManualClock())
    with capture_logs() as logs:
        probe_store(store, single_writer=True, clock=ManualClock())
    assert logs
    assert all("is your promise" in entry["finding"] for entry in logs if "create-only" in entry["function"])


def test_what_a_store_lacks_is_logged_once_and_the_store_is_taken() -> None:
    store = MemoryStore(faults=[Fault("unfinished_uploads", nth, FaultKind.UNSUPPORTED) for nth in range(9)])
    store.gives_times = False
    with capture_logs() as logs:
        probe_store(store, clock=ManualClock())
    assert [(entry["event"], entry["function"]) for entry in logs] == [
        ("store_function_missing", "modification times"),
        ("store_function_missing", "list unfinished uploads"),
    ]
    assert store.objects == {}


class WrongChecksums(MemoryStore):
    """Keeps every byte, and reports another CRC-32C of large objects."""

    def head(self, key: ObjectKey) -> ObjectFacts | None:
        """See `ObjectStore`."""
        facts = super().head(key)
        if facts is None or facts.size_bytes < 1024:
            return facts
        return ObjectFacts(facts.key, facts.size_bytes, facts.modified_ms, 0xBAD)


def test_a_store_with_wrong_checksums_of_multipart_uploads_is_distinguished_from_one_that_changes_bytes() -> None:
    with pytest.raises(StoreUnsafe, match=r"set store\.s3\.checksum: none") as caught:
        probe_store(WrongChecksums(), clock=ManualClock())
    assert "the store reports 00000bad" in str(caught.value)

    class ChangesBytes(MemoryStore):
        def stream(
            self, key: ObjectKey, chunk_bytes: int = 1, *, checked: bool = True, on_facts: OnFacts | None = None
        ) -> Iterator[bytes]:
            yield b"other bytes"

        def read(
            self, key: ObjectKey, position: int = 0, size_bytes: int | None = None, *, whole: bool = False
        ) -> bytes:
            found = super().read(key, position, size_bytes, whole=whole)
            return found if len(found) < 1024 * 1024 else b"other bytes"

    with pytest.raises(StoreUnsafe, match="the store returns other bytes than were uploaded"):
        probe_store(ChangesBytes(), clock=ManualClock())
