"""Has partitions compacted in the archive, on an engine for the size of the work."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from sidecar import __version__
from sidecar.archive.commit import Writer
from sidecar.archive.state import PartitionState, newest_strategy
from sidecar.clock import HasClock
from sidecar.compactor.archive.compactor import ArchiveCompactor
from sidecar.compactor.archive.plan import CompactionRequest, PartitionCompaction
from sidecar.compactor.candidate_queue import Candidate, DeletionUnnoted, LedPartition
from sidecar.compactor.topic_rule import TopicRule, require_rule, rules_of, strategy_refusal
from sidecar.config import Settings
from sidecar.engine_ports import CompactionEngines
from sidecar.errors import Fenced
from sidecar.ports import HasFacts, HasInstance


class JobPorts(HasClock, HasFacts, HasInstance, Protocol):
    """What this takes of the world."""


@dataclass(frozen=True, slots=True)
class ArchiveJobs:
    """What a `CompactionWorker` calls: one job for each call. `rule_of`: what holds for a topic now."""

    settings: Settings
    context: JobPorts
    engines: CompactionEngines
    rule_of: Callable[[str], TopicRule]
    is_cut_off: Callable[[], bool] = lambda: False

    def __call__(self, work: Sequence[Candidate]) -> Iterable[PartitionCompaction]:
        """Compact these. Raises what `ArchiveCompactor.compact` raises, behind what was committed before."""
        by_root = {one.led.root: one for one in work}
        compactor = ArchiveCompactor(
            self.settings.store,
            self.engines.for_bytes(sum(one.size_bytes for one in work)),
            self.context.clock,
            self.settings.compaction.staging_path if self.settings.spark.is_local else None,
            max_staging_bytes=self.settings.compaction.staging_bytes,
            is_cut_off=self.is_cut_off,
            confirm=lambda request, decided: self._confirm_one(by_root[request.root], decided),
        )
        now_ms = self.context.clock.now_ms()
        committed: list[PartitionCompaction] = []
        results = None
        try:
            results = compactor.compact([self._request(one, now_ms) for one in work], done=committed.append)
        finally:  # An error goes on to the caller, after what was committed before it.
            yield from committed if results is None else results

    def _request(self, one: Candidate, now_ms: int) -> CompactionRequest:
        context = self.context
        return CompactionRequest(
            one.led.root,
            rules_of(one.policy, now_ms),
            Writer(context.facts.broker_id(), one.led.leader_epoch, context.instance, f"tiered-sidecar {__version__}"),
            None if one.assessment is None else one.assessment.first_uncleanable_offset,
            one.policy.keep_raw_ms,
            may_change_strategy=self._is_declared(one),
            newest_commit=one.led.newest_commit,
        )

    def _is_declared(self, one: Candidate) -> bool:
        rule = self.rule_of(one.led.topic_partition.topic)
        if rule.policy is None or not rule.is_declared:
            return False
        return (rule.policy.strategy, rule.policy.header) == (one.policy.strategy, one.policy.header)

    def _confirm_one(self, one: Candidate, decided: PartitionState) -> None:
        """Raises RuleChanged, and what `_confirm` raises."""
        partition = one.led.topic_partition
        rule = self.rule_of(partition.topic)
        # What declared a change of the strategy may have been removed since the job began.
        require_rule(partition, one.policy, rule.policy, strategy_refusal(rule, newest_strategy(decided)))
        self._confirm(one.led, decided)

    def _confirm(self, led: LedPartition, decided: PartitionState) -> None:
        """Ask the broker again: hours may have passed since the job began. `decided`: the archive that the job compacted.

        Raises Fenced, BrokerUnavailable, DeletionUnnoted.
        """
        if led.files is None:
            return
        now = self.context.facts.confirm(led.files)
        if not now.leads or now.leader_epoch != led.leader_epoch:
            raise Fenced(
                f"{led.topic_partition}: leadership changed during the compaction (leader epoch {led.leader_epoch} then, "
                f"{now.leader_epoch if now.leads else 'not leading'} now); nothing was committed"
            )
        if led.unnoted_at is None:
            return
        policy = self.context.facts.policy(led.topic_partition.topic)
        deleted = led.unnoted_at(decided, led.files, now, policy)
        if deleted is not None and deleted > (decided.start_offset or 0):
            raise DeletionUnnoted(
                f"{led.topic_partition}: records below offset {deleted} were probably deleted on the broker "
                "(DeleteRecords) while the partition was compacted. Nothing was committed, and no record was lost. "
                "It is compacted again later",
                decided,
                deleted,
            )
