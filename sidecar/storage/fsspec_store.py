"""Any other fsspec file system as an object store: to be read, or written as far as it can create exclusively (mode "xb").

Whether it truly can is the probe's question, not a table's. Local directories have an adapter of their own, which is durable.
The probe refuses file systems that show a file while it is written (SFTP and the like). There, a process that dies in the
middle of a commit would leave a piece of it under the commit's key for good.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from http import HTTPStatus
from typing import Any, TypeVar

from fsspec.core import url_to_fs
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from sidecar.clock import SystemClock
from sidecar.errors import (
    ObjectMissing,
    OutcomeUnknown,
    SettingsError,
    SidecarError,
    StoreDenied,
    StoreUnavailable,
    StoreUnsafe,
    StoreUnsupported,
)
from sidecar.model import ObjectKey
from sidecar.ports import MIB, ObjectFacts, OnFacts, UnfinishedUpload, UploadSource
from sidecar.storage.bandwidth import IoBudget, PacedChunks
from sidecar.storage.object_keys import check_key
from sidecar.storage.opening import INSTEAD
from sidecar.storage.os_errors import os_error
from sidecar.storage.store_clock import milliseconds_of

Answer = TypeVar("Answer")

_BEYOND_BUFFERS_BYTES = 8 * MIB
"""fsspec's buffered files begin to send after 5 MiB."""
_RANGE_BYTES = 4 * MIB
"""Read at once, for a stream of smaller chunks: each range takes two requests."""


def file_system(url: str, instead: str, options: dict[str, Any] | None = None) -> tuple[AbstractFileSystem, str]:
    """The file system of a URL, and the path in it. Raises SettingsError for a protocol that is unknown or not installed.

    Args:
        instead: what to use instead, for the error.
        options: of file systems by protocol, as fsspec takes them.
    """
    try:
        with translating("open", "", url, passes=(ImportError, ValueError, TypeError)):
            files, path = url_to_fs(url, **(options or {}))
    except (ImportError, ValueError, TypeError) as error:
        raise SettingsError(f"{url}: {error}; {instead}") from error
    return files, path


class FsspecReader:
    """Objects of an fsspec file system below one path. An `ObjectStore` whose writes are refused."""

    lists_by_page = False

    def __init__(self, files: AbstractFileSystem, root: str, url: str, query: str = "") -> None:
        """Args: query: what each file's URL ends with, such as a signature: never shown."""
        self._files = files
        self._root = root.rstrip("/")
        self._query = query
        self.url = url

    def close(self) -> None:
        """fsspec shares file systems between users; nothing of it is ours to close."""

    def put_if_absent(self, key: ObjectKey, body: bytes) -> None:
        raise self._only_read("create", key)

    def upload(self, key: ObjectKey, source: UploadSource) -> int:
        raise self._only_read("create", key)

    def read(self, key: ObjectKey, position: int = 0, size_bytes: int | None = None, *, whole: bool = False) -> bytes:
        facts = self.head(key)
        if facts is None:
            raise ObjectMissing(f"read {key} at {self.url}: no such object")
        end = facts.size_bytes if size_bytes is None else min(facts.size_bytes, position + size_bytes)
        if position >= end:
            return b""
        path = self._path(key)
        content = self._ask("read", key, lambda: bytes(self._files.cat_file(path, start=position, end=end)))
        if len(content) > end - position:
            raise StoreUnsafe(
                f"read {key} at {self.url}: {end - position} bytes were requested, {len(content)} were returned: "
                "the server ignores range requests. Download the file"
            )
        return content

    def stream(
        self, key: ObjectKey, chunk_bytes: int = 4 * MIB, *, checked: bool = True, on_facts: OnFacts | None = None
    ) -> Iterator[bytes]:
        facts = self.head(key)
        if facts is None:
            raise ObjectMissing(f"read {key} at {self.url}: no such object")
        if on_facts is not None:
            on_facts(facts)
        # By ranges: an open file of fsspec's memory file system shares its position with every other reader.
        range_bytes = max(chunk_bytes, _RANGE_BYTES)
        for position in range(0, facts.size_bytes, range_bytes):
            fetched = self.read(key, position, range_bytes)
            yield from (fetched[begin : begin + chunk_bytes] for begin in range(0, len(fetched), chunk_bytes))

    def head(self, key: ObjectKey) -> ObjectFacts | None:
        def info() -> ObjectFacts | None:
            self._files.invalidate_cache()
            return self._facts(key, self._files.info(self._path(key)))

        try:
            return self._ask("stat", key, info)
        except ObjectMissing:
            return None

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectFacts]:
        """See `ObjectStore`. All names below the prefix's folder are in memory."""
        found: dict[str, dict[str, Any]] = {}

        def find() -> dict[str, dict[str, Any]]:
            self._files.invalidate_cache()
            return self._find(prefix)

        with suppress(ObjectMissing):
            found = self._ask("list", prefix, find)
        keys = sorted((name[len(self._root) :].lstrip("/"), details) for name, details in found.items() if name)
        for key, details in keys:
            facts = self._facts(ObjectKey(key), details)
            if facts is not None and key.startswith(prefix) and key > start_after:
                yield facts

    def list_folders(self, prefix: str) -> Iterator[str]:
        last = ""
        for facts in self.list(prefix):
            name, slash, _ = facts.key[len(prefix) :].partition("/")
            if slash and name != last:
                last = name
                yield name

    def delete(self, keys: Iterable[ObjectKey]) -> None:
        for key in keys:
            raise self._only_read("delete", key)

    def unfinished_uploads(self, prefix: str) -> Iterator[UnfinishedUpload]:
        return iter(())

    def abort_upload(self, upload: UnfinishedUpload) -> None:
        """See `ObjectStore`. Never called with an upload of ours, since none is listed."""
        raise ObjectMissing(f"{upload.key}: {self.url} has no unfinished uploads")

    def _ask(self, operation: str, key: str, call: Callable[[], Answer]) -> Answer:
        """One request to the file system. Raises ours."""
        with translating(operation, key, self.url, hidden=self._query):
            return call()

    def _find(self, prefix: str) -> dict[str, dict[str, Any]]:
        """Files by path: at least those whose key begins with the prefix."""
        folder = f"{self._root}/{prefix.rpartition('/')[0]}".rstrip("/")
        found: dict[str, dict[str, Any]] = self._files.find(folder or "/", detail=True, on_error=_unless_missing)
        return found

    def _path(self, key: str) -> str:
        return f"{self._root}/{check_key(key)}{self._query}"

    def _facts(self, key: ObjectKey, details: dict[str, Any]) -> ObjectFacts | None:
        if details.get("type") != "file":
            return None
        size_bytes = details.get("size")
        if size_bytes is None:
            raise StoreUnsafe(f"stat {key} at {self.url}: the server does not say how large it is; download the file")
        return ObjectFacts(key, int(size_bytes), _modified_ms(details))

    def _only_read(self, operation: str, key: str) -> StoreUnsupported:
        return StoreUnsupported(f"{operation} {key} at {self.url}: it is open for reading only")


@contextmanager
def translating(
    operation: str,
    key: str,
    where: str,
    otherwise: type[SidecarError] = StoreUnavailable,
    passes: tuple[type[Exception], ...] = (),
    hidden: str = "",
) -> Iterator[None]:
    """Raises ours instead of whatever the file system's own library raises, except what the caller handles itself.

    Args:
        hidden: left out of the error's text.
    """
    try:
        yield
    except SidecarError:
        raise
    except passes:
        raise
    except Exception as error:
        # Each file system is a plug-in, with a library and exceptions of its own.
        ours = _meaning(error, operation, key, where, otherwise)
        if hidden and hidden in str(ours):
            raise type(ours)(str(ours).replace(hidden, "?…")) from None
        raise ours from error


def _meaning(error: Exception, operation: str, key: str, where: str, otherwise: type[SidecarError]) -> SidecarError:
    if "botocore" in sys.modules:
        from sidecar.storage.s3.errors import StoreRequest, meaning_behind

        if (found := meaning_behind(error, StoreRequest(operation, key, where))) is not None:
            return found
    if isinstance(error, FileNotFoundError) and (behind := _web_meaning(error.__cause__)) is not None:
        kind, what = behind
        return kind(f"{operation} {key or '/'} at {where}: {what}")
    if isinstance(error, OSError):
        return os_error(error, operation, key, where, otherwise)
    what = str(error) or type(error).__name__
    return otherwise(f"{operation} {key or '/'} at {where}: {what}; check the url and the network")


def _web_meaning(cause: BaseException | None) -> tuple[type[SidecarError], str] | None:
    """What is behind a file that fsspec's HTTP file system calls missing: it does so after any failure. None if it is missing."""
    if "aiohttp" not in sys.modules:
        return None
    from aiohttp import ClientError, ClientResponseError

    if isinstance(cause, ClientResponseError):
        # Its text has the whole URL, signature included.
        answer = f"the server answered {cause.status} {cause.message}"
        if cause.status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            return StoreDenied, f"{answer}; check the URL's signature, or give permission to read"
        is_missing = cause.status in {HTTPStatus.NOT_FOUND, HTTPStatus.GONE}
        return None if is_missing else (StoreUnavailable, f"{answer}; try again later")
    if isinstance(cause, ClientError | TimeoutError):
        return (
            StoreUnavailable,
            f"the server cannot be reached: {cause or 'no response'}; check the URL and the network",
        )
    return None


def _unless_missing(error: OSError) -> None:
    """For fsspec's walk, which would pass over a folder that cannot be listed: only a vanished one may be passed over."""
    if not isinstance(error, FileNotFoundError):
        raise error


def _modified_ms(details: dict[str, Any]) -> int | None:
    """Each file system names and types its modification time as it likes; None where it has none."""
    names = ("mtime", "LastModified", "last_modified", "modified", "created")
    return next((found for name in names if (found := milliseconds_of(details.get(name))) is not None), None)


class FsspecStore(FsspecReader):
    """Objects of an fsspec file system below one path."""

    def __init__(self, url: str, budget: IoBudget | None = None) -> None:
        """Raises SettingsError for a protocol that is unknown or not installed; StoreError if it cannot be reached."""
        files, root = file_system(url, INSTEAD)
        super().__init__(files, root, files.unstrip_protocol(root.rstrip("/")))
        self._budget = budget or IoBudget.unlimited(SystemClock())

    def read(self, key: ObjectKey, position: int = 0, size_bytes: int | None = None, *, whole: bool = False) -> bytes:
        """See `ObjectStore`. `stream` reads by it."""
        return self._budget.reads.take_read(super().read(key, position, size_bytes, whole=whole))

    def put_if_absent(self, key: ObjectKey, body: bytes) -> None:
        self._create(key, [body])

    def upload(self, key: ObjectKey, source: UploadSource) -> int:
        """See `ObjectStore`; parts and their checksums are the file system's own affair."""
        chunks = PacedChunks(source, self._budget.uploads)
        self._create(key, chunks)
        return chunks.crc32c

    def shows_unfinished(self, key: ObjectKey) -> bool:
        shown = False

        def chunks() -> Iterator[bytes]:
            nonlocal shown
            yield bytes(_BEYOND_BUFFERS_BYTES)
            shown = self.head(key) is not None
            yield b"end"

        self._create(key, chunks())
        return shown

    def delete(self, keys: Iterable[ObjectKey]) -> None:
        for key in keys:
            path = self._path(key)
            with suppress(ObjectMissing), translating("delete", key, self.url):
                self._files.rm_file(path)

    def _create(self, key: ObjectKey, chunks: Iterable[bytes]) -> None:
        path = self._path(key)
        try:
            # fsspec raises one of the two where a file system lacks the open mode "xb": they are its answers, not gaps of ours.
            with translating("create", key, self.url, OutcomeUnknown, passes=(NotImplementedError, ValueError)):
                self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
                self._write(path, chunks)
        except (NotImplementedError, ValueError) as error:
            raise StoreUnsafe(
                f"{self.url}: this file system cannot create exclusively, so writers could overwrite each other: {error}"
            ) from error

    def _write(self, path: str, chunks: Iterable[bytes]) -> None:
        file = self._files.open(path, "xb")
        with ExitStack() as unless_whole:
            unless_whole.callback(_discard, file)
            for chunk in chunks:
                file.write(chunk)
            file.close()
            unless_whole.pop_all()


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
