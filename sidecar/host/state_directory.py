"""The part of `run.state_dir` that belongs to one archive: the same for each spelling of its URL."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sidecar.errors import SettingsError


def archive_state_directory(state_path: Path, *, store_url: str, configured_url: str) -> Path:
    """The directory of this archive's journal, lock and cache, which may not exist yet. One of an older version is renamed.

    Args:
        store_url: as the opened store resolved it, `ObjectStore.url`.
        configured_url: `store.url` of the settings. Older versions named the directory by this spelling.

    Raises SettingsError if there are two directories, or the old one cannot be renamed.
    """
    directory = state_path / _name(_canonical(store_url))
    before = state_path / _name(configured_url)
    if before == directory or not before.is_dir():
        return directory
    if directory.is_dir():
        raise SettingsError(
            f"{directory} and {before} are both state directories of {store_url}, made for two spellings of store.url. Stop "
            "every sidecar that uses them, keep the one whose archives.sqlite is newer, and move the other out of run.state_dir"
        )
    try:
        # The lock belongs to the open file: a process that uses the directory keeps it.
        before.rename(directory)
    except FileNotFoundError:
        return directory  # Another process renamed it, and has its lock.
    except OSError as error:
        raise SettingsError(
            f"{before}: cannot be renamed to {directory.name} ({error.strerror}), the name for all spellings of store.url: "
            "rename it, or let the sidecar write to run.state_dir"
        ) from error
    return directory


def _canonical(store_url: str) -> str:
    """One text per archive. Directories as plain paths, links resolved: most settings spell them so, and need no renaming."""
    parts = urlsplit(store_url)
    return os.path.realpath(unquote(parts.path, errors="surrogateescape")) if parts.scheme == "file" else store_url


def _name(url: str) -> str:
    return sha256(url.encode(errors="surrogateescape")).hexdigest()[:16]
