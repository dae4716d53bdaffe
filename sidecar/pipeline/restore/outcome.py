"""What becomes of one partition."""

from __future__ import annotations

from dataclasses import dataclass

from sidecar.pipeline.restore.decisions import Decisions
from sidecar.pipeline.restore.finishing import FinishedLog
from sidecar.pipeline.restore.plan import PartitionPlan


@dataclass(slots=True)
class PartitionOutcome:
    """What was planned, decided, and what came of it. `problem`: why the partition was not restored, "" if it was.

    `is_done`: an earlier run of the command restored it. `segments_resumed`: those that an earlier run had fetched.
    `log` is None until it is restored.
    """

    plan: PartitionPlan
    decisions: Decisions | None = None
    is_done: bool = False
    segments_resumed: int = 0
    log: FinishedLog | None = None
    problem: str = ""

    @property
    def size_bytes(self) -> int:
        """Bytes of its objects in the archive."""
        return sum(plan.size_bytes for plan in self.plan.segments)

    def to_json(self) -> dict[str, object]:
        """The stable JSON form."""
        plan, decisions, log = self.plan, self.decisions, self.log
        partition = plan.topic_partition
        return {
            "topic": partition.topic,
            "partition": partition.partition,
            "lineage": plan.state.lineage.root,
            "state": self.state,
            "segments": len(plan.segments),
            "segments_resumed": self.segments_resumed,
            "bytes": self.size_bytes,
            "start_offset": log.start_offset if log else plan.start_offset,
            "end_offset": log.end_offset if log else plan.segments[-1].end_offset,
            "topic_id": decisions.topic_id if decisions else None,
            "leader_epochs": str(decisions.leader_epochs) if decisions else None,
            "producer_state": str(decisions.producer_state) if decisions else None,
            "reason": decisions.reason if decisions else "",
            "deleted_before_offset": plan.deleted_before_offset or None,
            "producers_blank_below": plan.blank_below,
            "lost": [[hole.base_offset, hole.end_offset, hole.reason] for hole in plan.lost],
            "compacted": log.compacted if log else None,
            "open_transactions": list(log.open_transactions) if log else [],
            "open_transactions_aborted": log.aborted if log else False,
            "problem": self.problem or None,
        }

    @property
    def state(self) -> str:
        """In a word."""
        if self.problem:
            return "stopped"
        if self.is_done:
            return "done before"
        return "restored" if self.log else "planned"
