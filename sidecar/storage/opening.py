"""From settings or a URL to a store. Each adapter's library is loaded only where its kind of URL is used.

Commands that only read open any fsspec file system, and S3 by way of s3fs with the store's own settings. Whole archives on S3 are
read through boto3 even so: s3fs lists a folder as a whole, which takes three times as long for `status`, and does not report the
store's checksums, which `verify` compares.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from sidecar.clock import Clock, SystemClock
from sidecar.errors import SettingsError
from sidecar.model import ObjectKey
from sidecar.ports import ObjectStore
from sidecar.randomness import SystemRandomness
from sidecar.storage.bandwidth import IoBudget
from sidecar.storage.directory_store import DirectoryStore
from sidecar.storage.retry import StoreLiveness
from sidecar.store_settings import StoreSettings

INSTEAD: Final = "use s3://bucket/prefix, a directory, or another fsspec protocol that can be written to"
_ONLY_READ = ("http", "https", "git", "github", "gist", "data", "libarchive", "tar", "zip", "reference")
_UNFIT: Final = {
    **dict.fromkeys(_ONLY_READ, f"can only be read; {INSTEAD}"),
    **dict.fromkeys(("dask", "dir", "generic", "jupyter", "jlab"), f"is not supported; {INSTEAD}"),
    **dict.fromkeys(("blockcache", "cached", "filecache", "simplecache"), f"is a cache, not a store; {INSTEAD}"),
    **dict.fromkeys(("s3a", "s3n"), "is a scheme of Hadoop; write s3{rest}"),
    "memory": "is lost when this process ends; use s3://bucket/prefix or a directory",
}


def require_fit(settings: StoreSettings) -> None:
    """Raise SettingsError where no archive can be written to a URL of this kind. Sends nothing, and loads nothing."""
    scheme = _scheme(settings.url)
    if scheme == "s3" or settings.directory is not None:
        return
    why = f"with :: in it is not supported; {INSTEAD}" if "::" in settings.url else _UNFIT.get(scheme, "")
    if why:
        rest = settings.url.removeprefix(scheme)
        raise SettingsError(f"{settings.url}: {scheme}:// {why.format(rest=rest)}")


def open_existing(settings: StoreSettings) -> ObjectStore:
    """As `open_store`, for commands that only read. Raises StoreMissing besides."""
    store = open_store(settings)
    if isinstance(store, DirectoryStore):
        store.require()
    return store


def open_store(
    settings: StoreSettings,
    clock: Clock | None = None,
    budget: IoBudget | None = None,
    answers: StoreLiveness | None = None,
) -> ObjectStore:
    """The store of `settings.url`. Sends nothing yet: `probe_store` does. Raises SettingsError, StoreError.

    Args:
        budget: of somebody who will change it. Default: what the settings say, for good.
        answers: called with whether there are any, of a store behind a network that this process talks to itself.
    """
    clock = clock or SystemClock()
    budget = budget or IoBudget.of(settings, clock)
    require_fit(settings)
    if _scheme(settings.url) == "s3":
        from sidecar.storage.s3.store import S3Store  # botocore is some 25 MB of memory

        return S3Store(settings, clock, budget=budget, answers=answers)
    if (directory := settings.directory) is not None:
        return DirectoryStore(directory, budget)
    from sidecar.storage.fsspec_store import FsspecStore

    return FsspecStore(settings.url, budget)


if TYPE_CHECKING:
    from fsspec.spec import AbstractFileSystem

_READABLE: Final = (
    "name s3://bucket/…, a file or directory, or a URL of another protocol that fsspec knows and that is installed"
)


def open_to_read(settings: StoreSettings) -> ObjectStore:
    """All that lies below `settings.url`, to take single objects of it; writes are refused. Raises SettingsError, StoreError."""
    if settings.directory is not None and ("::" not in settings.url or "://" not in settings.url):
        return open_existing(settings)
    files, root = _file_system(settings)
    return _reader(settings, SystemClock(), files, root, settings.url.rstrip("/"))


def open_archive_to_read(settings: StoreSettings) -> ObjectStore:
    """As `open_to_read`, to go through the whole of an archive. Also what can only be read, such as `zip://::s3://bucket/copy.zip`."""
    return (open_existing if _scheme(settings.url) == "s3" else open_to_read)(settings)


def open_file(settings: StoreSettings, clock: Clock | None = None) -> tuple[ObjectStore, ObjectKey]:
    """The file at `settings.url`, which is no local path, as an object of what it lies in. Raises SettingsError, StoreError."""
    is_web = _scheme(settings.url) in {"http", "https"}
    shown, mark, query = settings.url.partition("?") if is_web else (settings.url, "", "")
    inner, chained, outer = shown.partition("::")
    place, _, name = inner.rpartition("/")
    if not name:
        raise SettingsError(f"{shown}: ends with a slash, so it does not name a file; name one file")
    files, path = _file_system(settings)
    folder = path.removesuffix(mark + query).rpartition("/")[0]
    return _reader(settings, clock or SystemClock(), files, folder, place + chained + outer, mark + query), ObjectKey(
        name
    )


def _file_system(settings: StoreSettings) -> tuple[AbstractFileSystem, str]:
    from sidecar.storage.fsspec_store import file_system

    options: dict[str, Any] = {}
    if any(_scheme(part) == "s3" for part in settings.url.split("::")):
        from sidecar.storage.s3.s3fs_reader import s3fs_options

        options["s3"] = s3fs_options(settings.s3)
    return file_system(settings.url, _READABLE, options)


def _reader(
    settings: StoreSettings, clock: Clock, files: AbstractFileSystem, root: str, url: str, query: str = ""
) -> ObjectStore:
    from sidecar.storage.fsspec_store import FsspecReader
    from sidecar.storage.retry import Retrier

    if _scheme(settings.url) != "s3" or "::" in settings.url:
        return FsspecReader(files, root, url, query)
    from sidecar.storage.s3.s3fs_reader import S3FilesReader

    return S3FilesReader(files, root, url, Retrier(settings.retry, clock, SystemRandomness()))


def _scheme(url: str) -> str:
    return urlsplit(url).scheme
