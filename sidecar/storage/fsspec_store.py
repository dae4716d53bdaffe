"""Any other fsspec file system as an object store, as far as it can create exclusively (mode "xb").

Whether it truly can is the probe's question, not a table's. Local directories have an adapter of their own, which is durable.
File systems that show a file while it is written (SFTP and the like) may keep a piece of an upload that failed; it lies under
a key that no commit names, and counts as an orphan.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

from fsspec.core import url_to_fs
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.spec import AbstractBufferedFile

from sidecar.errors import ObjectMissing, OutcomeUnknown, SettingsError, SidecarError, StoreUnavailable, StoreUnsafe
from sidecar.model import ObjectKey
from sidecar.ports import MIB, ObjectFacts, UnfinishedUpload, UploadReceipt, UploadSource
from sidecar.storage.bandwidth import BandwidthLimit
from sidecar.storage.checksums import crc32c_of
from sidecar.storage.key_prefix import check_key
from sidecar.storage.os_errors import os_error
from sidecar.storage.store_time import milliseconds_of

_CHUNK_BYTES = 4 * MIB
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


class FsspecStore:
    """Objects of an fsspec file system below one path."""

    lists_by_page = False

    def __init__(self, url: str, limit: BandwidthLimit | None = None) -> None:
        """Raises SettingsError for a protocol that is unknown, unfit, or not installed; StoreError if it cannot be reached."""
        scheme = urlsplit(url).scheme
        if scheme in _UNFIT or "::" in url:
            raise SettingsError(
                f"{url}: {scheme}:// {_UNFIT.get(scheme, 'with :: in it is not supported')}; {_INSTEAD}"
            )
        try:
            with _translating("open", "", url, passes=(ImportError, ValueError, TypeError)):
                self._files, root = url_to_fs(url)
        except (ImportError, ValueError, TypeError) as error:
            raise SettingsError(f"{url}: {error}; {_INSTEAD}") from error
        self._root = root.rstrip("/")
        self._limit = limit
        self.url = self._files.unstrip_protocol(self._root)

    def close(self) -> None:
        """fsspec shares file systems between users; nothing of it is ours to close."""

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
                if self._limit is not None:
                    self._limit.take(len(chunk))
                crc32c = crc32c_of(chunk, crc32c)
                yield chunk

        self._create(key, chunks())
        return UploadReceipt(key, source.size_bytes, crc32c, requests=1)

    def read(self, key: ObjectKey, position: int = 0, size_bytes: int | None = None, *, whole: bool = False) -> bytes:
        """See `ObjectStore`. Fewer bytes than asked for where the object ends."""
        facts = self.head(key)
        if facts is None:
            raise ObjectMissing(f"read {key} at {self.url}: no such object")
        end = facts.size_bytes if size_bytes is None else min(facts.size_bytes, position + size_bytes)
        if position >= end:
            return b""
        with _translating("read", key, self.url):
            return bytes(self._files.cat_file(self._path(key), start=position, end=end))

    def stream(self, key: ObjectKey, chunk_bytes: int = 4 * MIB) -> Iterator[bytes]:
        """See `ObjectStore`."""
        facts = self.head(key)
        if facts is None:
            raise ObjectMissing(f"read {key} at {self.url}: no such object")
        # By ranges: an open file of fsspec's memory file system shares its position with every other reader.
        for position in range(0, facts.size_bytes, chunk_bytes):
            yield self.read(key, position, chunk_bytes)

    def head(self, key: ObjectKey) -> ObjectFacts | None:
        """See `ObjectStore`."""
        try:
            with _translating("stat", key, self.url):
                self._files.invalidate_cache()
                return self._facts(key, self._files.info(self._path(key)))
        except ObjectMissing:
            return None

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectFacts]:
        """See `ObjectStore`. All names below the prefix's folder are in memory."""
        found: dict[str, dict[str, Any]] = {}
        with suppress(ObjectMissing), _translating("list", prefix, self.url):
            self._files.invalidate_cache()
            folder = f"{self._root}/{prefix.rpartition('/')[0]}".rstrip("/")
            found = self._files.find(folder or "/", detail=True, on_error=_unless_missing)
        keys = sorted((name[len(self._root) :].lstrip("/"), details) for name, details in found.items() if name)
        for key, details in keys:
            facts = self._facts(ObjectKey(key), details)
            if facts is not None and key.startswith(prefix) and key > start_after:
                yield facts

    def list_folders(self, prefix: str) -> Iterator[str]:
        """See `ObjectStore`."""
        last = ""
        for facts in self.list(prefix):
            name, slash, _ = facts.key[len(prefix) :].partition("/")
            if slash and name != last:
                last = name
                yield name

    def delete(self, keys: Iterable[ObjectKey]) -> None:
        """See `ObjectStore`."""
        for key in keys:
            path = self._path(key)
            with suppress(ObjectMissing), _translating("delete", key, self.url):
                self._files.rm_file(path)

    def unfinished_uploads(self, prefix: str) -> Iterator[UnfinishedUpload]:
        """See `ObjectStore`: none that fsspec could tell of."""
        return iter(())

    def abort_upload(self, upload: UnfinishedUpload) -> None:
        """See `ObjectStore`. Never called with an upload of ours, since none is listed."""
        raise ObjectMissing(f"{upload.key}: {self.url} has no unfinished uploads")

    def _path(self, key: str) -> str:
        return f"{self._root}/{check_key(key)}"

    def _facts(self, key: ObjectKey, details: dict[str, Any]) -> ObjectFacts | None:
        if details.get("type") != "file":
            return None
        return ObjectFacts(key, int(details.get("size") or 0), _modified_ms(details))

    def _create(self, key: ObjectKey, chunks: Iterable[bytes]) -> None:
        path = self._path(key)
        try:
            with _translating("create", key, self.url, OutcomeUnknown, passes=(NotImplementedError, ValueError)):
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


@contextmanager
def _translating(
    operation: str,
    key: str,
    where: str,
    otherwise: type[SidecarError] = StoreUnavailable,
    passes: tuple[type[Exception], ...] = (),
) -> Iterator[None]:
    """Raises ours instead of whatever the file system's own library raises, except what the caller looks at itself."""
    try:
        yield
    except SidecarError:
        raise
    except passes:
        raise
    except OSError as error:
        raise os_error(error, operation, key, where, otherwise) from error
    except Exception as error:
        # Each file system is a plug-in, with a library and exceptions of its own.
        what = str(error) or type(error).__name__
        raise otherwise(f"{operation} {key or '/'} at {where}: {what}; check the url and the network") from error


def _unless_missing(error: OSError) -> None:
    """For fsspec's walk, which would pass over a folder that cannot be listed: only a vanished one may be passed over."""
    if not isinstance(error, FileNotFoundError):
        raise error


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


def _modified_ms(details: dict[str, Any]) -> int | None:
    """Each file system names and types its modification time as it likes; None where it has none."""
    names = ("mtime", "LastModified", "last_modified", "modified", "created")
    return next((found for name in names if (found := milliseconds_of(details.get(name))) is not None), None)
