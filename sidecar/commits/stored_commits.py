"""Commits and checkpoints of one lineage in a store: listed, read, checked, and put until it is proven which commit is stored."""

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import count, islice
from typing import Final

from sidecar.archive.checkpoint import CHECKPOINT_BYTES_MAX, decode_checkpoint
from sidecar.archive.commit import COMMIT_BYTES_MAX, Commit, decode_commit, digest
from sidecar.archive.keys import CHECKPOINTS, COMMITS, below, checkpoint_key, commit_key, parse_number, parse_root
from sidecar.archive.state import PartitionState
from sidecar.clock import Clock
from sidecar.errors import (
    CorruptFile,
    ObjectDamaged,
    ObjectExists,
    ObjectMissing,
    OutcomeUnknown,
    SidecarError,
    StoreUnsafe,
)
from sidecar.model import ObjectKey
from sidecar.ports import LISTED_AT_FIRST, ObjectFacts, ObjectStore

_BEGINNING_OF_BOTH = "c"
"""Of `checkpoints/`, which stand first in a listing, and of `commits/`."""
READERS = 8
READ_AHEAD = 16
RESTORE_COMMIT: Final = (
    "restore it from a replica of the bucket or from an earlier version of the object. Until then, every command that reads this "
    "commit stops here. Uploads and compactions read from the newest checkpoint on: they go on if it is above this commit"
)
SETTLE_S: Final = 1.4
"""A writer whose next task reads the commit log anyway retries for this long."""
SETTLE_S_PATIENT: Final = 60.0
"""A writer that would lose hours of work asks for so long."""
WAIT_S_FIRST: Final = 0.2
WAIT_S_MAX: Final = 10.0
_CONFIRMED: Final = "confirmed the put"
_EXISTS: Final = "says that it exists"


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
        root, beginning = f"{self._root}/", below(self._root, folder)
        inside = (facts for facts in found if facts.key.startswith(beginning))
        numbers = ((parse_number(facts.key.removeprefix(root)), facts) for facts in inside)
        return {number: facts for number, facts in numbers if number is not None}

    def checkpoint(self, number: int, listed: ObjectFacts) -> PartitionState:
        key = below(self._root, checkpoint_key(number))
        _require_size(key, listed.size_bytes, CHECKPOINT_BYTES_MAX)
        data = self._read(key, CHECKPOINT_BYTES_MAX)
        if data is None:
            raise CorruptFile("was listed, but no longer exists", file=key)
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
            seen = "it" if number == newest else f"commit {newest}"
            raise CorruptFile(
                f"commit {number} is missing, although this sidecar, a checkpoint or the listing shows {seen}. "
                "Commits are never deleted",
                file=self.key(number),
                advice=RESTORE_COMMIT,
            )
        return found

    def commit(self, number: int) -> tuple[Commit, str] | None:
        """A commit and the SHA-256 of its exact bytes, None if the store has none of this number. Raises CorruptFile."""
        key = self.key(number)
        data = self._read(key, COMMIT_BYTES_MAX)
        if data is None:
            return None
        commit = decode_commit(data, key)
        if commit.number != number:
            raise CorruptFile(f"holds commit {commit.number}", file=key)
        return commit, digest(data)

    def _read(self, key: ObjectKey, size_bytes_max: int) -> bytes | None:
        """All of a small object, None for none. No more is read than a writer of ours writes, whatever the object's size is."""
        try:
            data = self._store.read(key, 0, size_bytes_max + 1, whole=True)
        except ObjectMissing:
            return None
        except ObjectDamaged as error:
            raise CorruptFile(str(error).removeprefix(f"{key}: "), file=key) from error
        _require_size(key, len(data), size_bytes_max)
        return data

    def put(self, number: int, body: bytes) -> None:
        """Create a commit. Raises ObjectExists if the number is taken, and other StoreErrors."""
        self._store.put_if_absent(self.key(number), body)

    def key(self, number: int) -> ObjectKey:
        return below(self._root, commit_key(number))


def mark_of(facts: ObjectFacts) -> str:
    """What identifies an object among all that its key had or will have; empty if the store does not report it."""
    return f"{facts.size_bytes} {facts.modified_ms} {facts.etag}" if facts.etag else ""


def _require_size(key: ObjectKey, size_bytes: int, size_bytes_max: int) -> None:
    if size_bytes > size_bytes_max:
        raise CorruptFile(f"has at least {size_bytes} bytes; this program writes at most {size_bytes_max}", file=key)


def proves_not_committed(error: SidecarError) -> bool:
    """Whether an error of `CommitLog.append`, or of a step before it, proves that no commit names what was to be committed.

    Only then may the objects of the attempt be deleted. Such errors come before the put was sent, or after commit n was read
    with another nonce. Any other error after the put leaves the outcome unknown, whatever its class: a retry below this layer
    may be refused although its first try took hold.
    """
    return not isinstance(error, OutcomeUnknown | StoreUnsafe)


def put_once(stored: StoredCommits, clock: Clock, commit: Commit, body: bytes, settle_s: float) -> bool:
    """Put a commit. True: it is the one that is stored; False: another writer's commit has its number.

    Both answers are proven: the stored commit was read, and its nonce decides. Repeating the put is safe, because it is
    create-only and its bytes are the same.

    Args:
        body: the bytes of `commit`.
        settle_s: how long to ask before the outcome counts as unknown; waits grow from `WAIT_S_FIRST`.

    Raises:
        OutcomeUnknown: nothing proves the outcome. Its cause is the last error of the store, of any class.
        StoreUnsafe: the answers of the store contradict each other. The outcome is unknown too.
    """
    problem: SidecarError | None = None
    claim, is_missing, wait_s = "", False, WAIT_S_FIRST
    while True:
        if not claim:
            try:
                stored.put(commit.number, body)
                claim = _CONFIRMED
            except ObjectExists:
                claim = _EXISTS  # It may be our own: a retry below this layer finds what its first try made.
            except SidecarError as error:
                problem = error
        try:
            found = stored.commit(commit.number)
        except SidecarError as error:
            problem, is_missing = error, False  # Also where bytes are damaged: that proves nothing.
        else:
            if found is not None and (found[0].nonce == commit.nonce or claim != _CONFIRMED):
                return found[0].nonce == commit.nonce
            if found is not None:
                raise StoreUnsafe(
                    f"{stored.key(commit.number)}: the store confirmed the put, but holds another writer's commit. It ignores "
                    f"If-None-Match, so writers overwrite each other. No object was deleted. Use another store, or run one "
                    f"writer per partition"
                )
            is_missing = True
        if settle_s <= 0:
            raise _unknown(stored.key(commit.number), claim if is_missing else "", problem) from problem
        clock.sleep_s(min(wait_s, settle_s))
        settle_s, wait_s = settle_s - wait_s, min(2 * wait_s, WAIT_S_MAX)


def _unknown(key: str, claim: str, problem: SidecarError | None) -> OutcomeUnknown | StoreUnsafe:
    if claim:
        return StoreUnsafe(
            f"{key}: the store {claim}, but has no such object. It is not safe to archive to. No object was deleted"
        )
    return OutcomeUnknown(
        f"{key}: the outcome of this write is unknown ({problem}). No object was deleted. The next read of the commit log "
        f"resolves it"
    )
