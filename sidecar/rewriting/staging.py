"""Pure: how much of a job's work files waits at once, and in which steps it is written so that this has a bound.

Winners are decided over whole partitions before the first step, and a partition is committed after its last one. So steps change
nothing about what is kept: only that results are not joined over the border of a step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from sidecar.errors import StagingTooSmall

COPIES: Final = 2
"""What is rewritten of a segment waits as parts, and again in the segment that is joined of them."""

Step: TypeAlias = Mapping[int, range]
"""By number of a job, which of its segments are written."""


@dataclass(frozen=True, slots=True)
class SegmentNeed:
    """What the work files of a segment may take. `is_rewritten`: else its bytes are at most joined to its neighbours'."""

    base_offset: int
    size_bytes: int
    is_rewritten: bool
    is_joinable: bool = True

    @property
    def staging_bytes(self) -> int:
        """By the size that it has; only a conversion of legacy formats can make it larger."""
        if self.is_rewritten:
            return COPIES * self.size_bytes
        return self.size_bytes if self.is_joinable else 0


def steps(jobs: Mapping[int, Sequence[SegmentNeed]], max_bytes: int) -> tuple[Step, ...]:
    """All segments of all jobs, in order: as many in each step as fit, and at least one."""
    found: list[dict[int, range]] = []
    taken_bytes = 0
    for job, needs in jobs.items():
        for number, need in enumerate(needs):
            taken_bytes += need.staging_bytes
            if not found or taken_bytes > max_bytes:
                found.append({})
                taken_bytes = need.staging_bytes
            begin = found[-1][job].start if job in found[-1] else number
            found[-1][job] = range(begin, number + 1)
    return tuple(found)


def require_room(name: str, needs: Sequence[SegmentNeed], max_bytes: int) -> None:
    """Raises StagingTooSmall if the work files of one segment alone take more than `max_bytes`. `name`: the partition's."""
    largest = max((need for need in needs if need.is_rewritten), key=lambda need: need.staging_bytes, default=None)
    if largest is not None and largest.staging_bytes > max_bytes:
        raise StagingTooSmall(
            f"{name}: work files of the segment at offset {largest.base_offset} would take {largest.staging_bytes} bytes, "
            f"compaction.max_staging_bytes allows {max_bytes}; the partition stays as it is, and is not compacted: raise the "
            f"setting, and give compaction.staging_dir that room"
        )
