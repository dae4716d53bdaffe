"""Commits and checkpoints of one lineage in a store: listed, read and checked, and commits put."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import count, islice
from typing import Final

from sidecar.archive.checkpoint import CHECKPOINT_BYTES_MAX, decode_checkpoint
from sidecar.archive.commit import COMMIT_BYTES_MAX, Commit, decode_commit, digest
from sidecar.archive.keys import CHECKPOINTS, COMMITS, below, checkpoint_key, commit_key, parse_number, parse_root
from sidecar.archive.state import PartitionState
from sidecar.errors import CorruptFile, ObjectMissing
from sidecar.model import ObjectKey
from sidecar.ports import LISTED_AT_FIRST, ObjectFacts, ObjectStore

_BEGINNING_OF_BOTH = "c"
"""Of `checkpoints/`, which stand first in a listing, and of `commits/`."""
READERS = 8
READ_AHEAD = 16
RESTORE_COMMIT: Final = (
    "restore it from a replica of the bucket or from an earlier version of the object. Nothing is appended until then"
)


class StoredCommits:
    """Raises CorruptFile, with the key, for an object that is damaged or has vanished since it was listed."""

    def __init__(self, store: ObjectStore, root: ObjectKey) -> None:
        self._store = store
        self._root = root

    def listed(self, folder: str, start_after: str = "") -> dict[int, ObjectFacts]:
        """The objects in one of the numbered folders, by number; other objects there are passed over."""
        after = below(self._root, start_after) if start_after else ""
        return self._numbered(folder, self._store.list(below(self._root, folder), start_after=after))

    def listed_together(self) -> tuple[dict[int, ObjectFacts], dict[int, ObjectFacts] | None]:
        """All checkpoints, and all commits, by number; None for the commits where one short listing does not hold both."""
        if self._store.lists_by_page:
            found = list(islice(self._store.list(below(self._root, _BEGINNING_OF_BOTH)), LISTED_AT_FIRST))
            checkpoints = self._numbered(CHECKPOINTS, found)
            if len(found) < LISTED_AT_FIRST:
                return checkpoints, self._numbered(COMMITS, found)
            if found[-1].key >= below(self._root, COMMITS):
                return checkpoints, None
        return self.listed(CHECKPOINTS), None

    def _numbered(self, folder: str, found: Iterable[ObjectFacts]) -> dict[int, ObjectFacts]:
        beginning = f"{self._root}/"
        relative = ((facts.key.removeprefix(beginning), facts) for facts in found)
        numbers = ((parse_number(key), facts) for key, facts in relative if key.startswith(folder))
        return {number: facts for number, facts in numbers if number is not None}

    def checkpoint(self, number: int, listed: ObjectFacts) -> PartitionState:
        """The state that a checkpoint holds."""
        key = below(self._root, checkpoint_key(number))
        _require_size(key, listed.size_bytes, CHECKPOINT_BYTES_MAX)
        try:
            data = self._read(key, CHECKPOINT_BYTES_MAX)
        except ObjectMissing as error:
            raise CorruptFile("was listed, but cannot be read: it vanished", file=key) from error
        return decode_checkpoint(data, number, parse_root(self._root), key)

    def commits(self, first: int, listed: Mapping[int, ObjectFacts]) -> Iterator[tuple[Commit, str]]:
        """Commits from `first` to the newest one listed, each with the SHA-256 of its exact bytes.

        A listing may be stale: commits that it leaves out are read by key. None is read if a listed one is too large.
        """
        for facts in listed.values():
            _require_size(facts.key, facts.size_bytes, COMMIT_BYTES_MAX)
        newest = max(listed, default=-1)
        if first == newest:
            yield self.commit_below(first, newest)
        elif first < newest:
            with ThreadPoolExecutor(READERS, thread_name_prefix="commits") as pool:
                for begin in range(first, newest + 1, READ_AHEAD):
                    some = range(begin, min(begin + READ_AHEAD, newest + 1))
                    yield from pool.map(lambda number: self.commit_below(number, newest), some)

    def commits_by_key(self, first: int) -> Iterator[tuple[Commit, str]]:
        """The same without a listing, up to the first number under which the store has none."""
        for number in count(first):
            found = self.commit(number)
            if found is None:
                return
            yield found

    def commit_below(self, number: int, newest: int) -> tuple[Commit, str]:
        """A commit that must be there, because `newest` was seen. Raises CorruptFile."""
        found = self.commit(number)
        if found is None:
            seen = "it was seen before" if number == newest else f"commit {newest} was seen"
            raise CorruptFile(
                f"commit {number} is missing, although {seen}. Commits are never deleted",
                file=self.key(number),
                advice=RESTORE_COMMIT,
            )
        return found

    def commit(self, number: int) -> tuple[Commit, str] | None:
        """A commit and the SHA-256 of its exact bytes, None if the store has none of this number. Raises CorruptFile."""
        key = self.key(number)
        try:
            data = self._read(key, COMMIT_BYTES_MAX)
        except ObjectMissing:
            return None
        commit = decode_commit(data, key)
        if commit.number != number:
            raise CorruptFile(f"holds commit {commit.number}", file=key)
        return commit, digest(data)

    def _read(self, key: ObjectKey, size_bytes_max: int) -> bytes:
        """All of a small object. No more is read than a writer of ours writes, whatever the object's size is."""
        data = self._store.read(key, 0, size_bytes_max + 1, whole=True)
        _require_size(key, len(data), size_bytes_max)
        return data

    def put(self, number: int, body: bytes) -> None:
        """Create a commit. Raises ObjectExists if the number is taken, and other StoreErrors."""
        self._store.put_if_absent(self.key(number), body)

    def key(self, number: int) -> ObjectKey:
        """The full key of a commit."""
        return below(self._root, commit_key(number))


def mark_of(facts: ObjectFacts) -> str:
    """What tells an object from any other that stood, or will stand, under its key; empty where the store does not tell."""
    return f"{facts.size_bytes} {facts.modified_ms} {facts.etag}" if facts.etag else ""


def _require_size(key: ObjectKey, size_bytes: int, size_bytes_max: int) -> None:
    if size_bytes > size_bytes_max:
        raise CorruptFile(f"has at least {size_bytes} bytes; no writer of ours exceeds {size_bytes_max}", file=key)
