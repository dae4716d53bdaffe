"""How many batches were copied, rebuilt, emptied and dropped; it adds up over splits."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RewriteCounts:
    """What became of the batches of a split or of several."""

    verbatim: int = 0
    rebuilt: int = 0
    emptied: int = 0
    dropped: int = 0
    kept_records: int = 0
    legacy_losers_kept: int = 0

    def __add__(self, other: RewriteCounts) -> RewriteCounts:
        return RewriteCounts(
            self.verbatim + other.verbatim,
            self.rebuilt + other.rebuilt,
            self.emptied + other.emptied,
            self.dropped + other.dropped,
            self.kept_records + other.kept_records,
            self.legacy_losers_kept + other.legacy_losers_kept,
        )

    @property
    def identical(self) -> bool:
        """Whether every batch was copied as it was."""
        return not (self.rebuilt or self.emptied or self.dropped)
