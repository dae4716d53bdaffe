"""A process's way to the store, on which calls fail before or after they took hold, listings are old, and the process dies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeVar

from sidecar.errors import SettingsError, SidecarError, StoreError
from sidecar.model import ObjectKey
from sidecar.ports import MIB, ObjectFacts, OnFacts, UnfinishedUpload, UploadSource
from sidecar.storage.store_clock import PROBE_FOLDER
from tests.fakes.memory_store import MemoryStore


def _classes(error: type[StoreError]) -> Iterator[type[StoreError]]:
    for narrower in error.__subclasses__():
        yield narrower
        yield from _classes(narrower)


ERRORS: Final[dict[str, type[SidecarError]]] = {
    **{error.__name__: error for error in _classes(StoreError) if error.__module__ == StoreError.__module__},
    SettingsError.__name__: SettingsError,
}
"""Every error class of a store, and what a redirect is."""
CRASH: Final = "Crash"
PUTS: Final = ("put_if_absent", "upload")
STALE_MS: Final = 10_000

Answer = TypeVar("Answer")


class Crash(BaseException):
    """The process is gone: nothing that it would still do happens."""


@dataclass(frozen=True, slots=True)
class Fault:
    """The calls `[first, first + calls)` of an operation fail with an error, before or after they take hold.

    `operation`: "" for any. `key_part`: which the key contains. `after_commit_put`: only calls behind the first put of a commit
    count; a put that fails counts as well. `error`: a class of `ERRORS`, or `CRASH`.
    """

    error: str
    operation: str = ""
    key_part: str = ""
    first: int = 0
    calls: int = 1
    after: bool = False
    after_commit_put: bool = False


@dataclass(slots=True)
class Link:
    """Implements `ObjectStore` for one process. `arm` sets what goes wrong from now on; nothing at first.

    `injected`: how many calls failed, by error, operation, and whether they took hold. `trace`: takes in every call.
    """

    store: MemoryStore
    injected: Counter[tuple[str, str, bool]]
    trace: Callable[[bytes], None] = lambda _call: None
    faults: tuple[Fault, ...] = ()
    is_stale: bool = False
    is_dead: bool = False
    calls: int = 0
    interrupt_at: int | None = None
    interrupt: Callable[[], None] = lambda: None
    deleted: list[tuple[str, int]] = field(default_factory=list)
    """Key and time of each deletion."""
    url: str = "memory://"
    lists_by_page: bool = True
    _hits: Counter[Fault] = field(default_factory=Counter)
    _commit_was_put: bool = False

    def arm(self, faults: Iterable[Fault] = (), *, is_stale: bool = False) -> None:
        """From now on."""
        self.faults, self.is_stale, self.calls = tuple(faults), is_stale, 0
        self._hits.clear()
        self._commit_was_put = False
        self.interrupt_at = None

    def _due(self, operation: str, key: str) -> Fault | None:
        due = None
        for fault in self.faults:
            if fault.operation not in ("", operation) or fault.key_part not in key:
                continue
            if fault.after_commit_put and not self._commit_was_put:
                continue
            if fault.first <= self._hits[fault] < fault.first + fault.calls:
                due = due or fault
            self._hits[fault] += 1
        return due

    def _call(self, operation: str, key: str, act: Callable[[], Answer]) -> Answer:
        if self.is_dead:
            raise Crash(f"{operation} {key}")
        self.calls += 1
        self.trace(f"{operation} {key}\n".encode())
        if self.interrupt_at is not None and self.calls > self.interrupt_at:
            self.interrupt_at = None
            self.interrupt()
        fault = self._due(operation, key) if self.faults else None
        if operation in PUTS and "/commits/" in key:
            self._commit_was_put = True
        if fault is not None and not fault.after:
            self._fail(fault, operation, key)
        answer = act()
        if fault is not None:
            self._fail(fault, operation, key)
        return answer

    def _fail(self, fault: Fault, operation: str, key: str) -> None:
        self.injected[fault.error, operation, fault.after] += 1
        if fault.error == CRASH:
            self.is_dead = True
            raise Crash(f"{operation} {key}")
        raise ERRORS[fault.error](
            f"{key}: {operation} failed on purpose, {'after' if fault.after else 'before'} it took hold"
        )

    def put_if_absent(self, key: ObjectKey, body: bytes) -> None:
        """See `ObjectStore`."""
        self._call("put_if_absent", key, lambda: self.store.put_if_absent(key, body))

    def upload(self, key: ObjectKey, source: UploadSource) -> int:
        """See `ObjectStore`. One that fails before it takes hold leaves its parts behind."""
        self.store.unfinished.append(begun := UnfinishedUpload(key, str(self.calls), self.store.clock.now_ms()))
        sent_crc32c = self._call("upload", key, lambda: self.store.upload(key, source))
        self.store.unfinished.remove(begun)
        return sent_crc32c

    def read(self, key: ObjectKey, position: int = 0, size_bytes: int | None = None, *, whole: bool = False) -> bytes:
        """See `ObjectStore`."""
        return self._call("read", key, lambda: self.store.read(key, position, size_bytes, whole=whole))

    def stream(
        self, key: ObjectKey, chunk_bytes: int = 4 * MIB, *, checked: bool = True, on_facts: OnFacts | None = None
    ) -> Iterator[bytes]:
        """See `ObjectStore`."""
        yield from self._call(
            "stream", key, lambda: list(self.store.stream(key, chunk_bytes, checked=checked, on_facts=on_facts))
        )

    def head(self, key: ObjectKey) -> ObjectFacts | None:
        """See `ObjectStore`."""
        return self._call("head", key, lambda: self.store.head(key))

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectFacts]:
        """See `ObjectStore`. A stale listing lacks what is younger than `STALE_MS`, but for probes: `gc` needs these to begin."""
        found = self._call("list", prefix, lambda: tuple(self.store.list(prefix, start_after)))
        newest_ms = self.store.clock.now_ms() - STALE_MS
        is_fresh = not self.is_stale or prefix.startswith(PROBE_FOLDER)
        yield from found if is_fresh else [facts for facts in found if facts.modified_ms <= newest_ms]

    def list_folders(self, prefix: str) -> Iterator[str]:
        """See `ObjectStore`."""
        yield from self._call("list_folders", prefix, lambda: tuple(self.store.list_folders(prefix)))

    def delete(self, keys: Iterable[ObjectKey]) -> None:
        """See `ObjectStore`."""
        for key in keys:
            self._call("delete", key, lambda key=key: self._delete(key))  # type: ignore[misc]

    def _delete(self, key: ObjectKey) -> None:
        self.deleted.append((key, self.store.clock.now_ms()))
        self.store.delete([key])

    def unfinished_uploads(self, prefix: str) -> Iterator[UnfinishedUpload]:
        """See `ObjectStore`."""
        yield from self._call("unfinished_uploads", prefix, lambda: tuple(self.store.unfinished_uploads(prefix)))

    def abort_upload(self, upload: UnfinishedUpload) -> None:
        """See `ObjectStore`."""
        self._call("abort_upload", upload.key, lambda: self.store.abort_upload(upload))

    def close(self) -> None:
        """Nothing is held open."""
