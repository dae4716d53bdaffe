"""Any other fsspec file system as an object store, as far as it can create exclusively (mode "xb").

Whether it truly can is the probe's question, not a table's. Local directories have an adapter of their own, which is durable.
The probe refuses file systems that show a file while it is written (SFTP and the like): a process that dies in the middle of a
commit would leave a piece of it under the commit's key for good.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from fsspec.implementations.memory import MemoryFileSystem
from fsspec.spec import AbstractBufferedFile

from sidecar.clock import SystemClock
from sidecar.errors import ObjectMissing, OutcomeUnknown, SettingsError, StoreUnsafe
from sidecar.model import ObjectKey
from sidecar.ports import MIB, UploadReceipt, UploadSource
from sidecar.storage.bandwidth import IoBudget
from sidecar.storage.checksums import crc32c_of
from sidecar.storage.fsspec_reader import FsspecReader, file_system, translating

_CHUNK_BYTES = 4 * MIB
_BEYOND_BUFFERS_BYTES = 8 * MIB
"""fsspec's buffered files begin to send after 5 MiB."""
_MEMORY_LOCK = threading.Lock()
"""fsspec's memory file system tests and sets in two steps; within one process this makes them one."""


_UNFIT = {
    "http": "can only be read",
    "https": "can only be read",
    **dict.fromkeys(("git", "github", "gist", "data", "libarchive", "tar", "zip", "reference"), "can only be read"),
    **dict.fromkeys(("dask", "dir", "generic", "jupyter", "jlab", "s3a"), "is not supported"),
    **dict.fromkeys(("blockcache", "cached", "filecache", "simplecache"), "is a cache, not a store"),
}
_INSTEAD = "use s3://bucket/prefix, a directory, or another fsspec protocol that can be written to"


class FsspecStore(FsspecReader):
    """Objects of an fsspec file system below one path."""

    def __init__(self, url: str, budget: IoBudget | None = None) -> None:
        """Raises SettingsError for a protocol that is unknown, unfit, or not installed; StoreError if it cannot be reached."""
        scheme = urlsplit(url).scheme
        if scheme in _UNFIT or "::" in url:
            raise SettingsError(
                f"{url}: {scheme}:// {_UNFIT.get(scheme, 'with :: in it is not supported')}; {_INSTEAD}"
            )
        files, root = file_system(url, _INSTEAD)
        super().__init__(files, root, files.unstrip_protocol(root.rstrip("/")))
        self._budget = budget or IoBudget.unlimited(SystemClock())

    def read(self, key: ObjectKey, position: int = 0, size_bytes: int | None = None, *, whole: bool = False) -> bytes:
        """See `ObjectStore`. `stream` reads by it."""
        return self._budget.reads.take_read(super().read(key, position, size_bytes, whole=whole))

    def put_if_absent(self, key: ObjectKey, body: bytes) -> None:
        """See `ObjectStore`."""
        self._create(key, [body])

    def upload(self, key: ObjectKey, source: UploadSource) -> UploadReceipt:
        """See `ObjectStore`; parts and their checksums are the file system's own affair."""
        crc32c = 0

        def chunks() -> Iterator[bytes]:
            nonlocal crc32c
            for position in range(0, source.size_bytes, _CHUNK_BYTES):
                chunk = bytes(source.read_at(position, min(_CHUNK_BYTES, source.size_bytes - position)))
                self._budget.uploads.take(len(chunk))
                crc32c = crc32c_of(chunk, crc32c)
                yield chunk

        self._create(key, chunks())
        return UploadReceipt(key, source.size_bytes, crc32c, requests=1)

    def shows_unfinished(self, key: ObjectKey) -> bool:
        """See `MayShowUnfinished`."""
        shown = False

        def chunks() -> Iterator[bytes]:
            nonlocal shown
            yield bytes(_BEYOND_BUFFERS_BYTES)
            shown = self.head(key) is not None
            yield b"end"

        self._create(key, chunks())
        return shown

    def delete(self, keys: Iterable[ObjectKey]) -> None:
        """See `ObjectStore`."""
        for key in keys:
            path = self._path(key)
            with suppress(ObjectMissing), translating("delete", key, self.url):
                self._files.rm_file(path)

    def _create(self, key: ObjectKey, chunks: Iterable[bytes]) -> None:
        path = self._path(key)
        try:
            with translating("create", key, self.url, OutcomeUnknown, passes=(NotImplementedError, ValueError)):
                if isinstance(self._files, MemoryFileSystem):
                    # A file being written is visible there, so it is put in one piece; it lies in memory anyway.
                    body = b"".join(chunks)
                    with _MEMORY_LOCK:
                        self._files.pipe_file(path, body, mode="create")
                else:
                    self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
                    self._write(path, chunks)
        except (NotImplementedError, ValueError) as error:
            raise StoreUnsafe(f"{self.url}: this file system cannot create exclusively: {error}") from error

    def _write(self, path: str, chunks: Iterable[bytes]) -> None:
        file = self._files.open(path, "xb")
        written = False
        try:
            for chunk in chunks:
                file.write(chunk)
            file.close()
            written = True
        finally:
            if not written:
                _discard(file)


def _discard(file: Any) -> None:
    """Make nothing of a file that was not written to its end.

    The name is not removed: with file systems that create at `close` it could be another writer's object.
    """
    with suppress(OSError, AttributeError, RuntimeError):
        file.discard()
    if isinstance(file, AbstractBufferedFile):
        file.closed = True  # else its destructor would upload what it has
    else:
        with suppress(OSError):
            file.close()
