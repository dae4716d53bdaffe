"""How many batches were copied, rebuilt, emptied and dropped; it adds up over splits."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from operator import add, sub


@dataclass(frozen=True, slots=True)
class RewriteCounts:
    verbatim: int = 0
    rebuilt: int = 0
    emptied: int = 0
    dropped: int = 0
    kept_records: int = 0
    legacy_losers_kept: int = 0

    def __add__(self, other: RewriteCounts) -> RewriteCounts:
        return RewriteCounts(*map(add, astuple(self), astuple(other)))

    def __sub__(self, other: RewriteCounts) -> RewriteCounts:
        return RewriteCounts(*map(sub, astuple(self), astuple(other)))

    @property
    def written_batches(self) -> int:
        return self.verbatim + self.rebuilt + self.emptied

    @property
    def identical(self) -> bool:
        """Whether every batch was copied as it was."""
        return not (self.rebuilt or self.emptied or self.dropped)
