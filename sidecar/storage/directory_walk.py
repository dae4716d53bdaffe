"""Listings of a directory tree in the order of S3: by whole key, so `a-b` stands before `a/b`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from sidecar.model import ObjectKey

TEMPORARY_SUFFIX = ".uploading"
_RANDOM_LENGTH = 16


def walk(root: Path, prefix: str, start_after: str) -> Iterator[tuple[ObjectKey, os.stat_result]]:
    """Objects below `root` with `prefix`, above `start_after`, ascending. One directory's names at a time in memory."""
    for key, entry in _files(root, "", prefix, start_after):
        if not is_temporary(entry.name):
            try:
                status = entry.stat()
            except FileNotFoundError:
                continue  # deleted since its directory was read
            yield ObjectKey(key), status


def temporaries(root: Path, prefix: str) -> Iterator[tuple[ObjectKey, str, os.stat_result]]:
    """Temporary files of unfinished uploads: the key each was meant for, its own name, its status."""
    for key, entry in _files(root, "", prefix.rpartition("/")[0], ""):
        if is_temporary(entry.name):
            folder = key[: -len(entry.name)]
            target = folder + entry.name[1 : -len(TEMPORARY_SUFFIX) - _RANDOM_LENGTH - 1]
            try:
                status = entry.stat()
            except FileNotFoundError:
                continue
            if target.startswith(prefix):
                yield ObjectKey(target), entry.name, status


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
        return True  # Whoever reads on in there learns which directory it is; what lies beside it can be read.


def is_temporary(name: str) -> bool:
    """Whether a file of this name is an upload that has not ended."""
    return name.startswith(".") and name.endswith(TEMPORARY_SUFFIX)


def _files(root: Path, folder: str, prefix: str, start_after: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    for entry, is_directory in _entries(root / folder):
        key = folder + entry.name
        if not is_directory:
            if key.startswith(prefix) and key > start_after:
                yield key, entry
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
