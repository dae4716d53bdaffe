"""Which `<offset>.snapshot` files a broker drops when it loads a log: those are neither repaired nor relied upon."""

from __future__ import annotations

from collections.abc import Collection


def stray_offsets(offsets: Collection[int], segment_bases: Collection[int]) -> frozenset[int]:
    """Those that belong to no segment, but for the largest one if it lies at or above the largest base.

    That one is of a clean shutdown: state at the log's end. Source: ProducerStateManager.removeStraySnapshots.
    """
    unattached = set(offsets) - set(segment_bases)
    newest = max(unattached, default=None)
    if newest is not None and newest >= max(segment_bases, default=newest):
        unattached.remove(newest)
    return frozenset(unattached)
