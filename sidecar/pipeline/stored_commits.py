"""Commits and checkpoints of one lineage as a store has them: listed, read ahead, and never believed before they are checked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

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


class StoredCommits:
    """Reads only. What is damaged, or has vanished since it was listed, is a CorruptFile with its key."""

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
        _check_size(listed, CHECKPOINT_BYTES_MAX)
        return decode_checkpoint(self._read(key), number, parse_root(self._root), key)

    def commits(self, listed: Mapping[int, ObjectFacts]) -> Iterator[tuple[Commit, str]]:
        """Commits in the order of these numbers, each with the SHA-256 of its exact bytes. None is read if one is too large."""
        for facts in listed.values():
            _check_size(facts, COMMIT_BYTES_MAX)
        numbers = list(listed)
        if len(numbers) <= 1:
            yield from map(self._commit, numbers)
            return
        with ThreadPoolExecutor(READERS, thread_name_prefix="commits") as pool:
            for first in range(0, len(numbers), READ_AHEAD):
                yield from pool.map(self._commit, numbers[first : first + READ_AHEAD])

    def commit_sha256(self, number: int) -> str:
        """Of the exact bytes of a commit."""
        return digest(self._read(below(self._root, commit_key(number))))

    def _commit(self, number: int) -> tuple[Commit, str]:
        key = below(self._root, commit_key(number))
        data = self._read(key)
        commit = decode_commit(data, key)
        if commit.number != number:
            raise CorruptFile(f"holds commit {commit.number}", file=key)
        return commit, digest(data)

    def _read(self, key: ObjectKey) -> bytes:
        try:
            return self._store.read(key)
        except ObjectMissing as error:
            raise CorruptFile("was listed, but cannot be read: it vanished", file=key) from error


def mark_of(facts: ObjectFacts) -> str:
    """What tells an object from any other that stood, or will stand, under its key; empty where the store does not tell."""
    return f"{facts.size_bytes} {facts.modified_ms} {facts.etag}" if facts.etag else ""


def _check_size(facts: ObjectFacts, size_bytes_max: int) -> None:
    if facts.size_bytes > size_bytes_max:
        raise CorruptFile(f"has {facts.size_bytes} bytes; no writer of ours exceeds {size_bytes_max}", file=facts.key)
