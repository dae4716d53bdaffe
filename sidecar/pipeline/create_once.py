"""A create-only put whose outcome is settled: afterwards it is known whether these very bytes stand under the key."""

from __future__ import annotations

import structlog

from sidecar.clock import Clock
from sidecar.errors import ObjectExists, ObjectMissing, OutcomeUnknown, StoreError, StoreUnavailable, StoreUnsafe
from sidecar.model import ObjectKey
from sidecar.ports import ObjectStore

SETTLE_ATTEMPTS = 4
SETTLE_WAIT_S_FIRST = 0.2

_log = structlog.get_logger(__name__)


def create_once(store: ObjectStore, clock: Clock, key: ObjectKey, body: bytes) -> bool:
    """Put `body`, which holds a nonce so that equal bytes mean the same attempt. False: another's bytes were first.

    Raises:
        OutcomeUnknown: the store gave no answer, neither to the put nor to the question what stands there.
        StoreUnsafe: the store confirmed what it did not do, or let another writer overwrite.
    """
    problem: StoreError | None = None
    for attempt in range(SETTLE_ATTEMPTS):
        if attempt:
            clock.sleep_s(SETTLE_WAIT_S_FIRST * 2 ** (attempt - 1))
        exists = False
        try:
            store.put_if_absent(key, body)
        except ObjectExists:
            exists = True  # It may be our own: a retry below this layer, or an earlier attempt whose answer was lost.
        except (OutcomeUnknown, StoreUnavailable) as error:
            problem = error
        else:
            return _confirm(store, key, body)
        try:
            return _stands(store, key, body, "says that it exists") if exists else store.read(key) == body
        except ObjectMissing:
            # To put the same bytes again is safe: whichever put lands first, what stands is ours.
            continue
        except StoreUnavailable as error:
            problem = error
    raise OutcomeUnknown(
        f"{key}: it is not known whether this object stands ({problem}): the next read of the commit log tells"
    ) from problem


def _confirm(store: ObjectStore, key: ObjectKey, body: bytes) -> bool:
    """Read back what the store has confirmed."""
    try:
        if _stands(store, key, body, "confirmed the put"):
            return True
    except StoreUnavailable as error:
        _log.warning("put_not_read_back", key=key, reason=str(error))
        return True
    raise StoreUnsafe(
        f"{key}: the store confirmed the put, but holds other bytes: it lets writers overwrite each other (If-None-Match is "
        f"ignored) and is not safe for more than one writer"
    )


def _stands(store: ObjectStore, key: ObjectKey, body: bytes, claim: str) -> bool:
    try:
        return store.read(key) == body
    except ObjectMissing as error:
        raise StoreUnsafe(f"{key}: the store {claim}, but has no such object: it is not safe to archive to") from error
