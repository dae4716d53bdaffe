"""A commit's create-only put, until it is proven which commit is stored under that number."""

from __future__ import annotations

from typing import Final

from sidecar.archive.commit import Commit
from sidecar.clock import Clock
from sidecar.commits.stored_commits import StoredCommits
from sidecar.errors import ObjectExists, OutcomeUnknown, SidecarError, StoreUnsafe

SETTLE_S: Final = 1.4
"""A writer whose next turn reads the commit log anyway asks for so long."""
SETTLE_S_PATIENT: Final = 60.0
"""A writer that would lose hours of work asks for so long."""
WAIT_S_FIRST: Final = 0.2
WAIT_S_MAX: Final = 10.0

_CONFIRMED: Final = "confirmed the put"
_EXISTS: Final = "says that it exists"


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
