"""A directory as an object store: the default for one machine, and any mounted file system with hard links.

An object comes into being by `link`, which is atomic and refuses to replace. It is written and synced under a temporary
name first. So a crash or a full disk leaves nothing but that temporary file, which counts as an unfinished upload.
"""

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from sidecar.clock import SystemClock
from sidecar.errors import ObjectMissing, OutcomeUnknown, SettingsError, StoreError, StoreMissing, StoreUnsafe
from sidecar.model import ObjectKey
from sidecar.ports import MIB, ObjectFacts, OnFacts, UnfinishedUpload, UploadSource
from sidecar.randomness import SystemRandomness
from sidecar.storage.bandwidth import IoBudget, PacedChunks
from sidecar.storage.object_keys import check_key
from sidecar.storage.os_errors import os_error, translating_os_errors
from sidecar.storage.store_clock import known_ms

TEMPORARY_SUFFIX = ".uploading"
_RANDOM_LENGTH = 16


def walk(root: Path, prefix: str, start_after: str) -> Iterator[tuple[ObjectKey, os.stat_result]]:
    """Objects below `root` with `prefix`, above `start_after`, in S3's order: by whole key, so `a-b` comes before `a/b`.

    One directory's names at a time in memory.
    """
    for key, name, status in _files(root, "", prefix, start_after):
        if not is_temporary(name):
            yield ObjectKey(key), status


def temporaries(root: Path, prefix: str) -> Iterator[tuple[ObjectKey, str, os.stat_result]]:
    """Temporary files of unfinished uploads: the key each was meant for, its own name, its status."""
    for key, name, status in _files(root, "", prefix.rpartition("/")[0], ""):
        target = key[: -len(name)] + name[1 : -len(TEMPORARY_SUFFIX) - _RANDOM_LENGTH - 1]
        if is_temporary(name) and target.startswith(prefix):
            yield ObjectKey(target), name, status


def folders(root: Path, prefix: str) -> Iterator[str]:
    """Names of the directories below `prefix` that hold at least one object."""
    parent, _, beginning = prefix.rpartition("/")
    for entry, is_directory in _entries(root / parent):
        below = f"{parent}/{entry.name}/" if parent else f"{entry.name}/"
        if is_directory and entry.name.startswith(beginning) and _holds_objects(root, below):
            yield entry.name[len(beginning) :]


def _holds_objects(root: Path, folder: str) -> bool:
    try:
        return next(walk(root, folder, ""), None) is not None
    except PermissionError:
        return True  # Whoever reads on in there learns which directory it is; the others can be read.


def is_temporary(name: str) -> bool:
    return name.startswith(".") and name.endswith(TEMPORARY_SUFFIX)


def _files(root: Path, folder: str, prefix: str, start_after: str) -> Iterator[tuple[str, str, os.stat_result]]:
    """Key, name and status of each file."""
    for entry, is_directory in _entries(root / folder):
        key = folder + entry.name
        if not is_directory:
            if key.startswith(prefix) and key > start_after:
                with suppress(FileNotFoundError):  # deleted since its directory was read
                    yield key, entry.name, entry.stat()
            continue
        below = key + "/"
        may_match = below.startswith(prefix) or prefix.startswith(below)
        may_follow = below > start_after or start_after.startswith(below)
        if may_match and may_follow:
            yield from _files(root, below, prefix, start_after)


def _entries(directory: Path) -> list[tuple[os.DirEntry[str], bool]]:
    """Entries with whether each is a directory, in the order that their keys have."""
    try:
        with os.scandir(directory) as entries:
            found = [(entry, entry.is_dir(follow_symlinks=False)) for entry in entries]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(found, key=lambda pair: pair[0].name + "/" if pair[1] else pair[0].name)


_CREATE_ATTEMPTS = 5
_LINK_UNSUPPORTED = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}


class DirectoryStore:
    """Objects as files below `root`, which is created with the first object. Safe for use from several threads."""

    lists_by_page = True

    def __init__(self, root: Path, budget: IoBudget | None = None) -> None:
        """Raises SettingsError if `root` is something else than a directory, StoreError if it cannot be read."""
        self.root = root.absolute()
        self.url = self.root.as_uri()
        self._budget = budget or IoBudget.unlimited(SystemClock())
        status = self._status()
        if status is not None and not stat.S_ISDIR(status.st_mode):
            raise SettingsError(
                f"{self.root} is not a directory; give the archive's url as a directory or as s3://bucket"
            )

    def require(self) -> None:
        """Raises StoreMissing if there is no such directory: whoever only reads must not take that for an empty archive."""
        if self._status() is None:
            raise StoreMissing(f"{self.root}: there is no such directory; correct the archive's url")

    def _status(self) -> os.stat_result | None:
        try:
            with translating_os_errors("open", "", self.url):
                return self.root.stat()
        except ObjectMissing:
            return None

    def close(self) -> None:
        """Nothing stays open between calls."""

    def put_if_absent(self, key: ObjectKey, body: bytes) -> None:
        self._create(key, [body])

    def upload(self, key: ObjectKey, source: UploadSource) -> int:
        """See `ObjectStore`; one chunk at a time is in memory."""
        chunks = PacedChunks(source, self._budget.uploads)
        self._create(key, chunks)
        return chunks.crc32c

    def read(self, key: ObjectKey, position: int = 0, size_bytes: int | None = None, *, whole: bool = False) -> bytes:
        path = self._path(key)
        with translating_os_errors("read", key, self.url), path.open("rb") as file:
            # A buffer of the size asked for would be made before the first byte is read: ask for what is there.
            left_bytes = max(0, os.fstat(file.fileno()).st_size - position)
            file.seek(position)
            content = file.read(left_bytes if size_bytes is None else min(size_bytes, left_bytes))
        return self._budget.reads.take_read(content)

    def stream(
        self, key: ObjectKey, chunk_bytes: int = 4 * MIB, *, checked: bool = True, on_facts: OnFacts | None = None
    ) -> Iterator[bytes]:
        if on_facts is not None:
            if (facts := self.head(key)) is None:
                raise ObjectMissing(f"read {key} at {self.url}: no such object")
            on_facts(facts)
        with translating_os_errors("read", key, self.url), self._path(key).open("rb") as file:
            while chunk := file.read(chunk_bytes):
                yield self._budget.reads.take_read(chunk)

    def head(self, key: ObjectKey) -> ObjectFacts | None:
        """See `ObjectStore`. Directories keep no checksum."""
        path = self._path(key)
        try:
            with translating_os_errors("stat", key, self.url):
                status = path.stat()
        except ObjectMissing:
            return None
        if not stat.S_ISREG(status.st_mode):
            return None
        return ObjectFacts(key, status.st_size, known_ms(status.st_mtime_ns // 1_000_000))

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectFacts]:
        with translating_os_errors("list", prefix, self.url):
            for key, status in walk(self.root, prefix, start_after):
                yield ObjectFacts(key, status.st_size, known_ms(status.st_mtime_ns // 1_000_000))

    def list_folders(self, prefix: str) -> Iterator[str]:
        with translating_os_errors("list", prefix, self.url):
            yield from folders(self.root, prefix)

    def delete(self, keys: Iterable[ObjectKey]) -> None:
        """See `ObjectStore`. Directories that have become empty go too; a writer that needs one makes it again."""
        for key in keys:
            path = self._path(key)
            with suppress(ObjectMissing), translating_os_errors("delete", key, self.url):
                path.unlink()
                self._prune(path.parent)

    def _prune(self, directory: Path) -> None:
        with suppress(OSError):  # not empty, or not ours to remove
            while directory != self.root:
                directory.rmdir()
                directory = directory.parent

    def unfinished_uploads(self, prefix: str) -> Iterator[UnfinishedUpload]:
        with translating_os_errors("list", prefix, self.url):
            for key, name, status in temporaries(self.root, prefix):
                yield UnfinishedUpload(key, name, known_ms(status.st_mtime_ns // 1_000_000))

    def abort_upload(self, upload: UnfinishedUpload) -> None:
        check_key(upload.upload_id)
        path = self._path(upload.key).parent / Path(upload.upload_id).name
        with suppress(ObjectMissing), translating_os_errors("abort", upload.key, self.url):
            path.unlink()

    def _path(self, key: str) -> Path:
        return self.root / check_key(key)

    def _create(self, key: ObjectKey, chunks: Iterable[bytes]) -> None:
        path = self._path(key)
        # The temporary file is in its target's directory, because a link cannot cross file systems.
        temporary = path.parent / f".{path.name}.{SystemRandomness().random_bytes(8).hex()}{TEMPORARY_SUFFIX}"
        with translating_os_errors("create", key, self.url):
            descriptor = self._open_new(temporary, key)
        try:
            with translating_os_errors("create", key, self.url), os.fdopen(descriptor, "wb") as file:
                for chunk in chunks:
                    file.write(chunk)
                file.flush()
                os.fsync(descriptor)
            self._link(temporary, path, key)
        finally:
            with suppress(OSError):
                temporary.unlink()

    def _open_new(self, temporary: Path, key: ObjectKey) -> int:
        left = _CREATE_ATTEMPTS
        while True:
            try:
                _make_directories(temporary.parent)
                return os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            except (FileExistsError, NotADirectoryError) as error:
                raise StoreError(
                    f"create {key} at {self.url}: a file exists where this key needs a directory"
                ) from error
            except FileNotFoundError:  # Another process removed its last object there, and the directory with it.
                left -= 1
                if not left:
                    raise

    def _link(self, temporary: Path, path: Path, key: ObjectKey) -> None:
        try:
            os.link(temporary, path)
        except OSError as error:
            if error.errno in _LINK_UNSUPPORTED:
                raise StoreUnsafe(
                    f"{self.url}: this file system has no hard links, so nothing can be created atomically. Use another file "
                    f"system, or an object store"
                ) from error
            raise os_error(error, "create", key, self.url) from error
        try:
            sync_directory(path.parent)
        except OSError as error:
            raise OutcomeUnknown(
                f"create {key} at {self.url}: the directory cannot be synced: {error.strerror}"
            ) from error


def _make_directories(directory: Path) -> None:
    """Create what is missing, durably: a new directory's entry lies in its parent."""
    missing = []
    while not directory.is_dir():
        missing.append(directory)
        directory = directory.parent
    for new in reversed(missing):
        new.mkdir(exist_ok=True)
        sync_directory(new.parent)


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
