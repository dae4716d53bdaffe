"""Offsets that were gone before they were archived: recorded, and told aloud."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import structlog

from sidecar.archive.actions import Action, Lost
from sidecar.model import TopicPartition
from sidecar.pipeline.tools import Tools

_log = structlog.get_logger(__name__)

OFFSETS_LOST: Final = "OffsetsLost"
NOT_ON_DISK: Final = "no longer on the broker's disk when it was to be archived"
DELETED_FIRST: Final = "deleted on purpose, by DeleteRecords, before it was archived"


def tell_gone_before_first(
    tools: Tools, partition: TopicPartition, gone: tuple[int, int], log_start_offset: int | None = None
) -> None:
    """Offsets `[from, to)` were seen, and are gone before anything was archived: no commit can say so, the archive begins above.

    Args:
        log_start_offset: of the leader, None where it is not known.
    """
    reason = f"{NOT_ON_DISK}; nothing was archived before, so that the archive begins above"
    _log.error(
        "offsets_lost",
        partition=str(partition),
        from_offset=gone[0],
        to_offset=gone[1],
        log_start_offset=log_start_offset,
        reason=reason,
        action="find out why uploads were late, or who removed files; nothing but this names them",
    )
    _count(tools, gone[1] - gone[0])
    tools.board.failed(str(partition), OFFSETS_LOST, f"offsets {gone[0]} to {gone[1] - 1} are lost: {reason}")


def tell_lost(
    tools: Tools, partition: TopicPartition, said: Iterable[Action], log_start_offset: int | None = None
) -> None:
    """A commit of ours says that offsets are lost: nobody may find that out by reading the archive only.

    What was deleted on purpose is no loss.

    Args:
        said: all that it says.
        log_start_offset: of the leader, None where it is not known any more.
    """
    for hole in said:
        if isinstance(hole, Lost) and hole.reason != DELETED_FIRST:
            _log.error(
                "offsets_lost",
                partition=str(partition),
                from_offset=hole.base_offset,
                to_offset=hole.end_offset,
                log_start_offset=log_start_offset,
                reason=hole.reason,
                action="find out why uploads were late, or who removed files, unless the log was restored without them; status and "
                "verify will go on to name the hole",
            )
            _count(tools, hole.end_offset - hole.base_offset)
            lost = f"offsets {hole.base_offset} to {hole.end_offset - 1} were recorded as LOST: {hole.reason}"
            tools.board.failed(str(partition), OFFSETS_LOST, lost)


def _count(tools: Tools, offsets: int) -> None:
    tools.metrics.broker.offsets_lost(offsets)
    tools.memory.note_loss(tools.clock.now_ms())  # A restart must not end the alert.
