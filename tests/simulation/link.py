"""A process's way to the store, on which requests also take hold late, and uploads that were aborted meanwhile fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from sidecar.archive.keys import LOG_SUFFIX
from sidecar.errors import ObjectExists, OutcomeUnknown, StoreMissing, StoreUnavailable, StoreUnsafe
from sidecar.model import ObjectKey
from sidecar.ports import UnfinishedUpload, UploadSource
from tests.histories.faults import Answer, Crash, Link
from tests.simulation.findings import Finding

Late = list[Callable[[], None]]
"""Requests that are still on their way, though their senders heard of errors."""


@dataclass(frozen=True, slots=True)
class Misread:
    """An `UploadSource` whose last bit is another one."""

    of: UploadSource

    @property
    def size_bytes(self) -> int:
        return self.of.size_bytes

    @property
    def name(self) -> str:
        return self.of.name

    def read_at(self, position: int, size_bytes: int) -> bytes:
        """See `UploadSource`."""
        found = bytearray(self.of.read_at(position, size_bytes))
        found[-1] ^= position + size_bytes == self.size_bytes
        return bytes(found)


@dataclass(slots=True)
class SimLink(Link):
    """`late`: those of all processes. `is_late`: a small put or DELETE that fails before it takes hold does so later, if it can.

    `lies`: the store confirms so many commits that it does not keep. `misreads`: so many logs are read with another bit when
    they are sent. `operation`: of the newest call.
    `is_unsafe`: the races of puts would find two winners. `is_proven`: they have found none since the process began.
    `interrupt_operation`: only such calls count for `interrupt_at`; "" for all. `is_confirmed`: whether the broker has said, for
    the commit with this key and no other, that it leads. `committing`: called with key and body of each commit before its put.
    """

    late: Late = field(default_factory=list)
    is_late: bool = False
    lies: int = 0
    misreads: int = 0
    is_unsafe: bool = False
    is_proven: bool = True
    operation: str = ""
    interrupt_operation: str = ""
    is_confirmed: Callable[[str], bool] = lambda _key: True
    committing: Callable[[str, bytes], None] = lambda _key, _body: None

    def _call(self, operation: str, key: str, act: Callable[[], Answer]) -> Answer:
        self.operation = operation
        if self.interrupt_at is not None:
            self._pass_over(operation)
        return Link._call(self, operation, key, act)  # A class with slots has no plain super().

    def _pass_over(self, operation: str) -> None:
        if self.interrupt_operation not in ("", operation) and self.interrupt_at is not None:
            self.interrupt_at += 1

    def pause(self, operation: str) -> None:
        """The process does something that takes a while, and is no call of the store: it may be interrupted there, too."""
        if self.is_dead:
            raise Crash(operation)
        self.operation = operation
        self._pass_over(operation)
        self.calls += 1
        if self.interrupt_at is not None and self.calls > self.interrupt_at:
            self.interrupt_at = None
            self.interrupt()

    def require_safe_store(self) -> None:
        """See `RunContext`."""
        if self.is_unsafe and not self.is_proven:
            raise StoreUnsafe("two puts of one key succeeded")
        self.is_proven = True

    def put_if_absent(self, key: ObjectKey, body: bytes) -> None:
        """See `ObjectStore`. Raises Finding for a commit before the store has proven that it can keep one, or without a leader."""
        if is_commit := "/commits/" in key:
            if not self.is_proven:
                raise Finding("commit-unproven", key)
            if not self.is_confirmed(key):
                raise Finding("commit-unconfirmed", key)
            self.committing(key, body)

        def put() -> None:
            if self.lies and is_commit and key not in self.store.objects:
                self.lies -= 1
                self.injected["Lie", "put_if_absent", False] += 1
                return
            self.store.put_if_absent(key, body)

        self._call_or_land("put_if_absent", key, put, partial(self._land, key, body))

    def delete(self, keys: Iterable[ObjectKey]) -> None:
        """See `ObjectStore`."""
        for key in keys:
            if not self.is_dead:
                self.store.doomed.add(key)
            self._call_or_land("delete", key, partial(self._delete, key), partial(self.store.delete, [key]))

    def _call_or_land(self, operation: str, key: str, act: Callable[[], None], land: Callable[[], None]) -> None:
        is_sent = False

        def send() -> None:
            nonlocal is_sent
            is_sent = True
            act()

        try:
            self._call(operation, key, send)
        except (OutcomeUnknown, StoreUnavailable):
            if self.is_late and not is_sent:
                self.late.append(land)
            raise

    def _land(self, key: ObjectKey, body: bytes) -> None:
        with suppress(ObjectExists):
            self.store.put_if_absent(key, body)

    def upload(self, key: ObjectKey, source: UploadSource) -> int:
        """See `ObjectStore`. What is small goes in one request; else a failure before it takes hold leaves parts behind."""
        unfinished = self.store.unfinished
        begun = UnfinishedUpload(key, str(self.calls), self.store.clock.now_ms())
        if has_parts := key.endswith(LOG_SUFFIX):
            unfinished.append(begun)
        if is_misread := has_parts and self.misreads > 0 and source.size_bytes > 0:
            self.misreads -= 1
            self.injected["Misread", "upload", False] += 1

        def complete() -> int:
            if has_parts and begun not in unfinished:
                raise StoreMissing(f"{key}: the upload was aborted")
            sent_crc32c = self.store.upload(key, Misread(source) if is_misread else source)
            if has_parts:
                unfinished.remove(begun)
            return sent_crc32c

        return self._call("upload", key, complete)
