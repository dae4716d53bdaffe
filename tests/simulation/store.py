"""The object store that all processes of a schedule share: one thread, no locks, and what the checks need to be cheap."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from typing import Final

from crc32c import crc32c

from sidecar.clock import Clock
from sidecar.errors import ObjectExists, ObjectMissing
from sidecar.model import ObjectKey
from sidecar.ports import MIB, ObjectFacts, OnFacts, UnfinishedUpload, UploadSource
from tests.fakes.memory_store import MemoryStore

_ABOVE_ALL: Final = "\U0010ffff"
"""Behind all characters that keys have."""


class SimStore(MemoryStore):
    """As `MemoryStore`. `changed`: keys that were written or deleted since somebody emptied it, in that order.

    `doomed`: keys of which a process wanted to delete the objects. Where it got no answer, that may happen at any time.
    """

    def __init__(self, clock: Clock) -> None:
        """Empty."""
        super().__init__(clock)
        self.changed: dict[str, None] = {}
        self.doomed: set[str] = set()
        self._known: dict[str, ObjectFacts] = {}
        self._ascending: list[str] = []

    # Behind the back of all processes.

    def take_away(self, key: str) -> tuple[bytes, int]:
        """An object is missing from now on. Returns what `give_back` takes."""
        self.changed[key] = None
        self._known.pop(key, None)
        self._ascending.remove(key)
        return self.objects.pop(key), self.modified_ms.pop(key)

    def give_back(self, key: str, body: bytes, modified_ms: int) -> None:
        """It is there again, as it was."""
        self.changed[key] = None
        self._known.pop(key, None)
        if key not in self.objects:
            insort(self._ascending, key)
        self.objects[key], self.modified_ms[key] = body, modified_ms

    # What processes ask.

    def _create(self, operation: str, key: str, body: bytes) -> None:
        if key in self.objects:
            raise ObjectExists(f"{key} exists")
        self.changed[key] = None
        insort(self._ascending, key)
        self.objects[key], self.modified_ms[key] = body, self.clock.now_ms()

    def upload(self, key: ObjectKey, source: UploadSource) -> int:
        """See `ObjectStore`."""
        body = bytes(source.read_at(0, source.size_bytes))
        self._create("upload", key, body)
        return self._facts(key).crc32c or 0

    def _body(self, key: str) -> bytes:
        body = self.objects.get(key)
        if body is None:
            raise ObjectMissing(f"{key} does not exist")
        return body

    def read(self, key: ObjectKey, position: int = 0, size_bytes: int | None = None, *, whole: bool = False) -> bytes:
        """See `ObjectStore`."""
        body = self._body(key)
        if not position and (size_bytes is None or size_bytes >= len(body)):
            return body
        return body[position : None if size_bytes is None else position + size_bytes]

    def stream(
        self, key: ObjectKey, chunk_bytes: int = 4 * MIB, *, checked: bool = True, on_facts: OnFacts | None = None
    ) -> Iterator[bytes]:
        """See `ObjectStore`."""
        body = self._body(key)
        if on_facts is not None:
            on_facts(self._facts(key))
        yield body

    def head(self, key: ObjectKey) -> ObjectFacts | None:
        """See `ObjectStore`."""
        return self._facts(key) if key in self.objects else None

    def _facts(self, key: str) -> ObjectFacts:
        found = self._known.get(key)
        if found is None:
            body = self.objects[key]
            checksum = crc32c(body)
            modified_ms = self.modified_ms[key] if self.gives_times else None
            found = ObjectFacts(ObjectKey(key), len(body), modified_ms, checksum, etag=f'"{checksum:08x}"')
            self._known[key] = found
        return found

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectFacts]:
        """See `ObjectStore`."""
        keys = self._ascending
        begin, end = bisect_left(keys, prefix), bisect_left(keys, prefix + _ABOVE_ALL)
        found = keys[max(begin, bisect_right(keys, start_after)) : end]
        return iter([self._known.get(key) or self._facts(key) for key in found])

    def list_folders(self, prefix: str) -> Iterator[str]:
        """See `ObjectStore`."""
        keys = self._ascending
        found = keys[bisect_left(keys, prefix) : bisect_left(keys, prefix + _ABOVE_ALL)]
        rests = [key[len(prefix) :] for key in found]
        return iter(sorted({rest.split("/")[0] for rest in rests if "/" in rest}))

    def delete(self, keys: Iterable[ObjectKey]) -> None:
        """See `ObjectStore`."""
        for key in keys:
            if self.objects.pop(key, None) is not None:
                self.changed[key] = None
                del self.modified_ms[key]
                self._known.pop(key, None)
                self._ascending.remove(key)

    def unfinished_uploads(self, prefix: str) -> Iterator[UnfinishedUpload]:
        """See `ObjectStore`."""
        return iter([upload for upload in self.unfinished if upload.key.startswith(prefix)])

    def abort_upload(self, upload: UnfinishedUpload) -> None:
        """See `ObjectStore`. Another process may have ended it."""
        if upload in self.unfinished:
            self.unfinished.remove(upload)
