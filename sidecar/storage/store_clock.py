"""The store's clock: times as a store gives them, what it says now, and how far this host's clock is from it."""

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from sidecar.clock import Clock
from sidecar.errors import FROM_STORE, OutcomeUnknown, StoreUnavailable, StoreUnsupported
from sidecar.event_log import EVENTS
from sidecar.model import ObjectKey
from sidecar.ports import ObjectStore
from sidecar.randomness import Randomness, SystemRandomness

DIFFERENCE_MS_MAX: Final = 60_000
"""More than this is reported. Beyond 15 minutes S3 refuses every request."""
_BODY = b"tiered-sidecar clock"
_LIST_AGAIN_S: Final = 1.0
_RESOLUTION_MS: Final = 1_000
"""S3 gives whole seconds, rounded down."""
CHECK_S: Final = 3600.0
"""Interval between two checks of `run`."""
PROBE_FOLDER: Final = "_probe"
"""Top-level folder of probe objects; no cluster id is this short."""


@dataclass(frozen=True, slots=True)
class ClockReading:
    """`store_ms`: what the store's clock said. `ahead_ms`: how far this host's clock is ahead of it at least; negative: behind."""

    store_ms: int
    ahead_ms: int

    @property
    def differs(self) -> bool:
        return abs(self.ahead_ms) > DIFFERENCE_MS_MAX

    def __str__(self) -> str:
        if not self.ahead_ms:
            return "this host's clock agrees with the store's"
        return f"this host's clock is {abs(self.ahead_ms) / 1000:.0f} s {'ahead of' if self.ahead_ms > 0 else 'behind'} the store's"


def read_store_clock(
    store: ObjectStore,
    clock: Clock,
    key: ObjectKey | None = None,
    *,
    wait_s: float = 0.0,
    randomness: Randomness | None = None,
) -> ClockReading:
    """Put a small object, take its time from the listing, delete it.

    Ages of objects are differences of two times of the store's clock, never of two clocks. The listing, because ages are taken
    from listings: a store may answer a HEAD with another time.

    Args:
        key: a fresh key for the object. Default: one in a probe folder of its own.
        wait_s: list again for so long until the listing shows the object.
        randomness: of that folder's name; the machine's by default.

    Raises:
        StoreUnsupported: the store gives no times.
        StoreUnavailable: the listing does not show the object.
        StoreError, SettingsError: the store fails.
    """
    key = key or ObjectKey(f"{new_probe_folder(randomness or SystemRandomness())}/clock")
    before_ms = clock.now_ms()
    unlisted = f"{store.url}: an object was written, and the listing does not show it yet"
    try:
        try:
            store.put_if_absent(key, _BODY)
        except OutcomeUnknown as error:  # The listing shows.
            unlisted = str(error)
        after_ms = clock.now_ms()
        facts = next(iter(store.list(key)), None)
        while facts is None and wait_s > 0:
            clock.sleep_s(min(_LIST_AGAIN_S, wait_s))
            wait_s -= _LIST_AGAIN_S
            facts = next(iter(store.list(key)), None)
    finally:
        # What stays is removed with other leftovers.
        with suppress(*FROM_STORE):
            store.delete([key])
    if facts is None:
        raise StoreUnavailable(unlisted)
    store_ms = facts.modified_ms
    if store_ms is None:
        raise StoreUnsupported(
            f"{store.url}: the store gives its objects no modification times, so the age of an object is unknown"
        )
    return ClockReading(store_ms, max(before_ms - store_ms - _RESOLUTION_MS, 0) - max(store_ms - after_ms, 0))


class ClockWatch:
    """Logs a WARNING when the two clocks begin to differ by more than a minute, and a line when they agree again.

    It writes to the store, which may hang: after the start it belongs on the thread of the chores, not on that of the loop.
    """

    def __init__(self, store: ObjectStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._differed = False

    def look(self) -> None:
        """Compare the clocks. A store that fails, or gives no times, is reported elsewhere."""
        try:
            reading = read_store_clock(self._store, self._clock)
        except FROM_STORE:
            return
        if reading.differs == self._differed:
            return
        self._differed = reading.differs
        if reading.differs:
            EVENTS.warning(
                "clock_differs_from_store",
                finding=str(reading),
                effect="times in commits and logs are wrong; ages of objects are measured by the store's clock",
                advice="synchronise this host's clock (NTP)",
            )
        else:
            EVENTS.info("clock_agrees_with_store")


def new_probe_folder(randomness: Randomness) -> ObjectKey:
    """A folder of its own for each probe: two never meet under one key."""
    return ObjectKey(f"{PROBE_FOLDER}/{randomness.random_bytes(8).hex()}")


def known_ms(milliseconds: int) -> int | None:
    """The time, or None where it is no time: stores without times say 1970, or year 1 (Go's zero time).

    Taken for times, both would make an object "infinitely old".
    """
    return milliseconds if milliseconds > 0 else None


def milliseconds_of(given: object) -> int | None:
    """As `known_ms`, of a datetime (UTC where it names no zone) or of seconds since the epoch; None for anything else."""
    if isinstance(given, datetime):
        return known_ms(int((given if given.tzinfo is not None else given.replace(tzinfo=UTC)).timestamp() * 1000))
    return known_ms(int(given * 1000)) if isinstance(given, int | float) else None


def is_old(time_ms: int | None, until_ms: int) -> bool:
    """Whether an object of this time is at least as old as `until_ms`. An unknown time means "now": never old."""
    return time_ms is not None and time_ms <= until_ms
