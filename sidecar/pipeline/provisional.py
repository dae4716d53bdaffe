"""Plans made from the disk and from what is known: they tell what to hold open, and begin nothing."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from sidecar.errors import PartitionError
from sidecar.model import PartitionFiles, SegmentFiles
from sidecar.partition.facts import PartitionFacts
from sidecar.partition.plan import PartitionPlan, plan_partition
from sidecar.pipeline.losses.log_start_history import LogStartHistory
from sidecar.pipeline.tools import Tools


def provisional_plan(
    tools: Tools, files: PartitionFiles, facts: PartitionFacts, pending: tuple[SegmentFiles, ...]
) -> PartitionPlan:
    """What of these segments is rolled and stable, where the archive cannot be asked what it lacks."""
    now_ms, settling = tools.clock.now_ms(), tools.policy.settling
    found = plan_partition(replace(files, segments=pending), facts, None, now_ms=now_ms, settling=settling)
    return replace(found, files=files, is_provisional=True)


def plan_beside(
    tools: Tools,
    files: PartitionFiles,
    plan: PartitionPlan,
    pending: tuple[SegmentFiles, ...],
    starts: LogStartHistory | None,
) -> PartitionPlan:
    """What has rolled above a plan whose turn has not ended. Nothing in another term.

    Args:
        files: as they are now, or as they were, if they cannot be listed. pending: all of them that are not archived yet.
        starts: is told what is seen; None where nothing is.
    """
    end_offset = plan.segments[-1].end_offset if plan.segments else -1
    above = tuple(segment for segment in pending if segment.end_offset > end_offset)
    segments: tuple[SegmentFiles, ...] = ()
    with suppress(PartitionError):  # The next plan tells.
        facts = tools.facts.partition(files)
        if starts is not None:
            starts.see(files, facts, tools.facts.policy(files.topic_partition.topic))
        if facts.term(files).is_one_with(plan.term):
            segments = provisional_plan(tools, files, facts, above).segments
    waiting = tuple(segment for segment in pending if segment not in segments)
    return replace(plan, files=files, segments=segments, waiting=waiting, is_provisional=True)
