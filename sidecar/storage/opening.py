"""From settings to a store. Each adapter's library is loaded only where its kind of URL is used."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, runtime_checkable
from urllib.parse import unquote, urlsplit

from sidecar.clock import Clock, SystemClock
from sidecar.errors import SettingsError
from sidecar.ports import ObjectStore
from sidecar.storage.answers import StoreAnswers
from sidecar.storage.bandwidth import IoBudget
from sidecar.storage.directory_store import DirectoryStore
from sidecar.store_settings import StoreSettings


@runtime_checkable
class HasAPlace(Protocol):
    """A store of which it can be told without a listing whether it is there at all."""

    def require(self) -> None:
        """Raises StoreMissing if it is not."""
        ...


def open_existing(settings: StoreSettings, clock: Clock | None = None) -> ObjectStore:
    """As `open_store`, for commands that only read. Raises StoreMissing besides."""
    store = open_store(settings, clock)
    if isinstance(store, HasAPlace):
        store.require()
    return store


def open_store(
    settings: StoreSettings,
    clock: Clock | None = None,
    budget: IoBudget | None = None,
    answers: StoreAnswers | None = None,
) -> ObjectStore:
    """The store of `settings.url`. Sends nothing yet: `probe_store` does. Raises SettingsError, StoreError.

    Args:
        budget: of somebody who will change it. Default: what the settings say, for good.
        answers: is told whether there are any, of a store behind a network that this process talks to itself.
    """
    clock = clock or SystemClock()
    budget = budget or IoBudget.of(settings, clock)
    parts = urlsplit(settings.url)
    if parts.scheme == "s3":
        from sidecar.storage.s3.store import S3Store  # boto3 is some 25 MB of memory

        return S3Store(settings, clock, budget=budget, answers=answers)
    if parts.scheme in {"file", "local"}:
        if parts.netloc:
            raise SettingsError(f"{settings.url}: a file url has three slashes: file:///directory")
        return DirectoryStore(Path(unquote(parts.path)), budget)
    if "://" not in settings.url:
        return DirectoryStore(Path(settings.url).expanduser(), budget)
    from sidecar.storage.fsspec_store import FsspecStore

    return FsspecStore(settings.url, budget)
