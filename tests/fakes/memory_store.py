"""An object store in memory, thread-safe, that fails where a test tells it to."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum

from crc32c import crc32c

from sidecar.clock import Clock
from sidecar.errors import (
    ObjectExists,
    ObjectFrozen,
    ObjectMissing,
    OutcomeUnknown,
    SettingsError,
    StoreDenied,
    StoreUnavailable,
    StoreUnsupported,
)
from sidecar.model import ObjectKey
from sidecar.ports import MIB, ObjectFacts, OnFacts, UnfinishedUpload, UploadSource
from tests.fakes.manual_clock import ManualClock

watchers: list[Callable[[MemoryStore], None]] = []
"""Called with each store that is made."""


@contextmanager
def unwatched() -> Iterator[None]:
    """Stores that are made meanwhile are no part of a test."""
    before = watchers[:]
    watchers.clear()
    try:
        yield
    finally:
        watchers[:] = before


class FaultKind(StrEnum):
    """What goes wrong with one call."""

    UNAVAILABLE = "StoreUnavailable, and nothing was done"
    DENIED = "StoreDenied, and nothing was done"
    FROZEN = "ObjectFrozen, and nothing was done"
    UNSUPPORTED = "StoreUnsupported, and nothing was done"
    REDIRECTED = "SettingsError, and nothing was done"
    LOST_REQUEST = "OutcomeUnknown, and nothing was done"
    LOST_ANSWER = "OutcomeUnknown, and it was done"
    LIE = "success, and nothing was done"
    DAMAGED_ANSWER = "a bit of what was read is another one, and not in the object"


@dataclass(frozen=True, slots=True)
class Fault:
    """Hits call number `nth` (from 0, counted per operation), if its key contains `key_part`."""

    operation: str
    nth: int
    kind: FaultKind
    key_part: str = ""


class MemoryStore:
    """Implements `sidecar.ports.ObjectStore`.

    `ignore_if_none_match`: puts overwrite silently. `before`: called at the start of each operation, outside the lock,
    with its name and key, so that a test can let another writer run in between. `before` may raise. `lists_etags`: listings
    tell ETags, as S3's do. `gives_times`: objects have modification times, by `clock`, which is the store's and nobody else's.
    `listings_stale_ms`: listings leave out objects that are younger; reads by key find them.
    """

    url = "memory://"
    lists_by_page = True

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        faults: Iterable[Fault] = (),
        ignore_if_none_match: bool = False,
        before: Callable[[str, str], None] = lambda operation, key: None,
    ) -> None:
        self.clock = clock or ManualClock(1_700_000_000_000)
        self.faults = list(faults)
        self.ignore_if_none_match = ignore_if_none_match
        self.before = before
        self.lists_etags = True
        self.gives_times = True
        self.listings_stale_ms = 0
        self.objects: dict[str, bytes] = {}
        self.modified_ms: dict[str, int] = {}
        self.calls: Counter[str] = Counter()
        self.unfinished: list[UnfinishedUpload] = []
        self._hits: Counter[Fault] = Counter()
        self._lock = threading.Lock()
        for watch in watchers:
            watch(self)

    def close(self) -> None:
        """Nothing is held open."""

    def _begin(self, operation: str, key: str) -> FaultKind | None:
        """Count the call and raise its fault; LOST_ANSWER, LIE and DAMAGED_ANSWER are left to the caller."""
        self.before(operation, key)
        with self._lock:
            self.calls[operation] += 1
            kind = None
            for fault in self.faults:
                if fault.operation == operation and fault.key_part in key:
                    if self._hits[fault] == fault.nth:
                        kind = fault.kind
                    self._hits[fault] += 1
        if kind is FaultKind.UNAVAILABLE:
            raise StoreUnavailable(f"{key}: {operation} failed on purpose")
        if kind is FaultKind.DENIED:
            raise StoreDenied(f"{key}: {operation} denied on purpose")
        if kind is FaultKind.FROZEN:
            raise ObjectFrozen(f"{key}: {operation} frozen on purpose")
        if kind is FaultKind.UNSUPPORTED:
            raise StoreUnsupported(f"{key}: {operation} not implemented on purpose")
        if kind is FaultKind.REDIRECTED:
            raise SettingsError(f"{key}: {operation} redirected on purpose")
        if kind is FaultKind.LOST_REQUEST:
            raise OutcomeUnknown(f"{key}: {operation} lost on purpose")
        return kind

    def _create(self, operation: str, key: str, body: bytes) -> None:
        kind = self._begin(operation, key)
        if kind is FaultKind.LIE:
            return
        with self._lock:
            if key in self.objects and not self.ignore_if_none_match:
                raise ObjectExists(f"{key} exists")
            self.objects[key] = body
            self.modified_ms[key] = self.clock.now_ms()
        if kind is FaultKind.LOST_ANSWER:
            raise OutcomeUnknown(f"{key}: the answer to {operation} was lost on purpose")

    def put_if_absent(self, key: ObjectKey, body: bytes) -> None:
        """See `ObjectStore`."""
        self._create("put_if_absent", key, bytes(body))

    def upload(self, key: ObjectKey, source: UploadSource) -> int:
        """See `ObjectStore`."""
        body = bytes(source.read_at(0, source.size_bytes))
        self._create("upload", key, body)
        return crc32c(body)

    def read(self, key: ObjectKey, position: int = 0, size_bytes: int | None = None, *, whole: bool = False) -> bytes:
        """See `ObjectStore`."""
        body = self._body(key, self._begin("read", key))
        return body[position : None if size_bytes is None else position + size_bytes]

    def _body(self, key: str, fault: FaultKind | None) -> bytes:
        with self._lock:
            if key not in self.objects:
                raise ObjectMissing(f"{key} does not exist")
            body = self.objects[key]
        return body[:-1] + bytes([body[-1] ^ 1]) if fault is FaultKind.DAMAGED_ANSWER else body

    def stream(
        self, key: ObjectKey, chunk_bytes: int = 4 * MIB, *, checked: bool = True, on_facts: OnFacts | None = None
    ) -> Iterator[bytes]:
        """See `ObjectStore`."""
        body = self._body(key, self._begin("stream", key))
        if on_facts is not None:
            on_facts(self._facts(key))
        for position in range(0, len(body), chunk_bytes):
            yield body[position : position + chunk_bytes]

    def head(self, key: ObjectKey) -> ObjectFacts | None:
        """See `ObjectStore`."""
        self._begin("head", key)
        with self._lock:
            return self._facts(key) if key in self.objects else None

    def _facts(self, key: str) -> ObjectFacts:
        body = self.objects[key]
        modified_ms = self.modified_ms.get(key, self.clock.now_ms()) if self.gives_times else None
        return ObjectFacts(ObjectKey(key), len(body), modified_ms, crc32c(body))

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectFacts]:
        """See `ObjectStore`."""
        self._begin("list", prefix)
        with self._lock:
            keys = sorted(key for key in self._listed(prefix) if key > start_after)
            found = [self._facts(key) for key in keys]
        for facts in found:
            yield replace(facts, etag=f'"{facts.crc32c:08x}"') if self.lists_etags else facts

    def _listed(self, prefix: str) -> list[str]:
        found = [key for key in self.objects if key.startswith(prefix)]
        if not self.listings_stale_ms:
            return found
        shown_ms = self.clock.now_ms() - self.listings_stale_ms
        return [key for key in found if self.modified_ms.get(key, shown_ms) <= shown_ms]

    def list_folders(self, prefix: str) -> Iterator[str]:
        """See `ObjectStore`."""
        self._begin("list_folders", prefix)
        with self._lock:
            rests = [key.removeprefix(prefix) for key in self._listed(prefix)]
        yield from sorted({rest.split("/")[0] for rest in rests if "/" in rest})

    def delete(self, keys: Iterable[ObjectKey]) -> None:
        """See `ObjectStore`."""
        for key in keys:
            self._begin("delete", key)
            with self._lock:
                self.objects.pop(key, None)
                self.modified_ms.pop(key, None)

    def unfinished_uploads(self, prefix: str) -> Iterator[UnfinishedUpload]:
        """See `ObjectStore`."""
        self._begin("unfinished_uploads", prefix)
        yield from [upload for upload in self.unfinished if upload.key.startswith(prefix)]

    def abort_upload(self, upload: UnfinishedUpload) -> None:
        """See `ObjectStore`."""
        self._begin("abort_upload", upload.key)
        self.unfinished.remove(upload)

    def damage(self, key: str, change: Callable[[bytes], bytes]) -> None:
        """Replace an object's bytes behind everybody's back."""
        with self._lock:
            self.objects[key] = change(self.objects[key])
