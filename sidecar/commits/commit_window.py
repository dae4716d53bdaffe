"""How long after its upload a segment may be committed: `gc` deletes objects that no commit has named for a day.

An object has the time that its listing gives, by the store's clock. `gc` of another process goes by the same two, and knows
nothing of an upload that goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from sidecar.archive.bundle import indexes_size_bytes, log_size_bytes
from sidecar.archive.keys import below
from sidecar.clock import Clock
from sidecar.errors import PartitionError, StoreUnavailable, StoreUnsupported
from sidecar.model import ArchivedSegment, ObjectKey
from sidecar.ports import ObjectStore
from sidecar.randomness import Randomness
from sidecar.storage.store_clock import is_old, read_store_clock

HOUR_MS: Final = 3_600_000
COMMIT_WITHIN_MS: Final = 12 * HOUR_MS
"""Half of `ORPHAN_MS`: the other half is there for the commit itself."""
ORPHAN_MS: Final = 2 * COMMIT_WITHIN_MS
"""`gc` deletes no younger object that no commit names."""
UNASKED_MS: Final = 10 * 60_000
"""The store is not asked for the age of objects whose upload began so shortly before by both of our clocks."""
LISTED_WITHIN_S: Final = 30.0
"""A commit waits so long for a listing that is stale: giving up costs the whole upload."""


class UploadExpired(PartitionError):
    """An uploaded object is gone, or too old to be committed. Nothing was committed."""

    retryable: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class AgeCheck:
    """Decides by one reading of the store's clock whether a commit may name objects.

    `store_now_ms`: None where the store gives no times. Then no `gc` deletes anything.
    """

    store: ObjectStore
    store_now_ms: int | None

    @classmethod
    def begin(
        cls, store: ObjectStore, clock: Clock, *, wait_s: float = 0.0, randomness: Randomness | None = None
    ) -> AgeCheck:
        """Read the store's clock. Raises StoreError: see `read_store_clock`, also for `wait_s` and `randomness`."""
        try:
            return cls(store, read_store_clock(store, clock, wait_s=wait_s, randomness=randomness).store_ms)
        except StoreUnsupported:
            return cls(store, None)

    def fault_of(self, key: ObjectKey, size_bytes: int, crc32c: int | None = None) -> str:
        """Why no commit may name this object; empty if one may.

        Raises StoreUnavailable if the listing does not show the object yet, and other StoreErrors.
        """
        found = self.store.head(key)
        if found is None:
            return "is gone"
        if found.size_bytes != size_bytes or (crc32c is not None and found.crc32c not in (None, crc32c)):
            return f"has other content than was sent: {found.size_bytes} bytes, {size_bytes} were sent"
        if self.store_now_ms is None:
            return ""
        listed = next((facts for facts in self.store.list(key) if facts.key == key), None)
        if listed is None:
            raise StoreUnavailable(
                f"{key}: the object is there, but the listing does not show it yet, so its age is unknown; nothing was committed"
            )
        if is_old(listed.modified_ms, self.store_now_ms - COMMIT_WITHIN_MS):
            return f"is older than {COMMIT_WITHIN_MS // HOUR_MS} hours by the store's clock"
        return ""


@dataclass(frozen=True, slots=True)
class CommitWindow:
    """`begun`: when the upload began by the wall clock (ms) and the monotonic clock (s); None: an earlier process began it."""

    store: ObjectStore
    clock: Clock
    begun: tuple[int, float] | None
    randomness: Randomness | None = None

    @classmethod
    def begin(cls, store: ObjectStore, clock: Clock, randomness: Randomness | None = None) -> CommitWindow:
        """To be called before the first byte is sent."""
        return cls(store, clock, (clock.now_ms(), clock.monotonic_s()), randomness)

    def require_open(self, root: str, segments: Sequence[ArchivedSegment]) -> None:
        """Call this right before each try to commit these uploaded segments.

        Raises:
            UploadExpired: an object is gone or too old. No commit may ever name it.
            StoreUnavailable: the store cannot tell now.
            StoreError: the store fails.
        """
        if not segments or self._is_fresh():
            return
        check = AgeCheck.begin(self.store, self.clock, wait_s=LISTED_WITHIN_S, randomness=self.randomness)
        for segment in segments:
            for relative, size_bytes in (
                (segment.log_key, log_size_bytes(segment)),
                (segment.indexes_key, indexes_size_bytes(segment)),
            ):
                key = below(root, relative)
                fault = check.fault_of(key, size_bytes)
                if fault:
                    raise UploadExpired(
                        f"{key} {fault}. No commit names this upload yet, and gc deletes such objects after "
                        f"{ORPHAN_MS // HOUR_MS} hours. So nothing was committed, and no archived data changed. `run` uploads the "
                        f"segments again by itself. Start a compaction again"
                    )

    def _is_fresh(self) -> bool:
        """The monotonic clock stops while a host sleeps; the wall clock may jump, also back."""
        if self.begun is None:
            return False
        wall_ms = self.clock.now_ms() - self.begun[0]
        monotonic_ms = (self.clock.monotonic_s() - self.begun[1]) * 1000
        return 0 <= wall_ms <= UNASKED_MS and monotonic_ms <= UNASKED_MS
