"""`before_upload`: rolled segments wait a while to be compacted as a group, which one commit archives.

A segment that has waited for too long is archived as it is.
"""

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain
from pathlib import Path
from typing import Final, TypeAlias

from sidecar.clock import Clock
from sidecar.compaction_strategy import StrategyInUse
from sidecar.compactor.topic_counts import OF_COPIES, InvalidRecords, RawReason, RawUploads
from sidecar.compactor.topic_rule import (
    NOT_COMPACTED,
    RuleUnknown,
    TopicRule,
    require_rule,
    rule_change,
    rules_of,
    strategy_change,
    strategy_refusal,
)
from sidecar.config import CompactionPolicy, CompactionSettings, CompactionWhen
from sidecar.config.compaction import NEVER_MS
from sidecar.event_log import EVENTS
from sidecar.model import FileIdentity, PartitionFiles, SegmentFiles, TopicPartition
from sidecar.partition.plan import PartitionPlan, newest_change_ms
from sidecar.partition.wait_reason import AwaitingCompaction
from sidecar.segment.bundle import CompactedCopy
from sidecar.segment.producer_snapshot import KnownState
from sidecar.topic_policy import NOT_REPORTED

GROUP_SEGMENTS_MAX: Final = 32
"""Segments of one group: all of their files are open at once, and one commit names them."""


@dataclass(frozen=True, slots=True, eq=False)
class CopyGroup:
    """Adjacent segments that were compacted among themselves, and their copies; None for a segment that goes as it is.

    A record of one segment may have lost to a record of any other. So one commit adds all of them: with only some of the
    copies in the archive, a key could be in none of them. `policy`: its rule compacted them, and must hold still at
    the commit. `unkeyed`: so many records without a key are in no copy. `malformed_versions`: of segments that have a copy.
    """

    segments: tuple[SegmentFiles, ...]
    copies: tuple[CompactedCopy | None, ...]
    policy: CompactionPolicy
    unkeyed: int = 0
    malformed_versions: int = 0

    @property
    def base_offset(self) -> int:
        return self.segments[0].base_offset

    @property
    def size_bytes(self) -> int:
        return sum(copy.size_bytes for copy in self.copies if copy is not None)

    def discard(self) -> None:
        """Remove the files of all copies, and with the last one their directory."""
        for copy in filter(None, self.copies):
            copy.path.unlink(missing_ok=True)
            remove_if_empty(copy.path.parent)


def remove_if_empty(directory: Path) -> None:
    with suppress(OSError):
        directory.rmdir()


_Name: TypeAlias = tuple[FileIdentity, int, int]
"""What a rolled segment is known by: its file as it was listed, its base and its end. What another broker has archived of it since
cuts it: a copy of all of it must not be committed for the rest."""


@dataclass(frozen=True, slots=True)
class RolledGroup:
    """Segments of one partition, adjacent and ready, and what is known of the producers at the first one's base.

    `files`: all of the partition; the offsets below `stable_end_offset` there show how transactions ended.
    """

    files: PartitionFiles
    stable_end_offset: int
    segments: tuple[SegmentFiles, ...]
    known: KnownState
    policy: CompactionPolicy

    @property
    def topic_partition(self) -> TopicPartition:
        return self.files.topic_partition

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)


@dataclass(slots=True)
class _Blocked:
    """`is_raw`: it goes as it is, because compaction changes nothing or cannot be waited for. `group`: it goes with these,
    in their commit. `since_s`: on the monotonic clock, for a wall clock that is set back would prolong the wait.
    """

    since_s: float
    is_raw: bool = False
    group: CopyGroup | None = None


@dataclass(frozen=True, slots=True)
class _Situation:
    """What decides whether a partition's segments wait. `refusal`: see `strategy_refusal`; the others: see `block`.

    `at_risk_end_offset`: what ends at or below it the broker deletes soon.
    """

    rule: TopicRule
    refusal: str
    start_offset: int
    at_risk_end_offset: int


@dataclass(slots=True)
class BeforeUpload:
    """What waits, and for what. Thread-safe: plans hold segments back, another thread compacts them.

    `rule_of`: what holds for a topic. `wake`: called when blocked segments may be archived.
    """

    settings: CompactionSettings
    clock: Clock
    rule_of: Callable[[str], TopicRule]
    wake: Callable[[], None] = lambda: None
    raw: RawUploads = field(default_factory=RawUploads)
    invalid: InvalidRecords = field(default_factory=InvalidRecords)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _blocked: dict[TopicPartition, dict[_Name, _Blocked]] = field(default_factory=dict)
    _groups: dict[TopicPartition, RolledGroup] = field(default_factory=dict)
    _changes: dict[TopicPartition, tuple[str, str]] = field(default_factory=dict)

    def block(
        self,
        plan: PartitionPlan,
        known: Callable[[], KnownState],
        deadline_of: Callable[[SegmentFiles], int | None],
        *,
        start_offset: int = 0,
        newest: Callable[[], StrategyInUse | None] = lambda: None,
    ) -> PartitionPlan:
        """The plan with those segments that may go; the others wait, and are offered for compaction.

        Args:
            known: gives the producers at the base of the plan's first segment. May raise SidecarError.
            deadline_of: gives when the broker deletes a segment, by time or by size; None for never, or if it is not known.
            start_offset: see `effective_log_start`. A segment that begins below goes as it is, and takes part in no decision.
            newest: gives the strategy of the archive's newest compaction. May raise SidecarError.
        """
        topic_partition = plan.files.topic_partition
        rule = self.rule_of(topic_partition.topic)
        policy = rule.policy
        if not rule.unknown and (policy is None or policy.when is not CompactionWhen.BEFORE_UPLOAD):
            self._let_go(topic_partition)
            return plan
        if not plan.segments:
            return plan
        ready = 0
        strategy = newest() if policy is not None else None
        at_risk_end_offset, until_risk_ms = self._at_risk(plan.segments, deadline_of)
        now = _Situation(rule, strategy_refusal(rule, strategy), start_offset, at_risk_end_offset)
        with self._lock:
            self._keep_only(plan, now)
            while ready < len(plan.segments) and self._may_go(plan.segments[ready], now):
                ready += 1
        if ready == len(plan.segments):
            return plan
        base_offset = plan.segments[ready].base_offset
        if ready:
            # What is behind them is offered when they are archived: only then is it known what producers have done.
            reason, recheck_in_ms = AwaitingCompaction(base_offset, is_next=False), 0
        else:
            group = None
            if policy is not None:
                self._tell_change(topic_partition, strategy_change(rule, strategy), policy)
                group = RolledGroup(plan.files, plan.facts.stable_end_offset, plan.segments, known(), policy)
            with self._lock:
                self._groups.pop(topic_partition, None)
                if group is not None:
                    self._groups[topic_partition] = group
                waits_ms = [self._left_ms(blocked) for blocked in self._blocked.get(topic_partition, {}).values()]
            reason = AwaitingCompaction(base_offset, is_next=True, rule_unknown=rule.unknown)
            recheck_in_ms = max(1, min((until_risk_ms, *waits_ms)))
        return replace(
            plan,
            segments=plan.segments[:ready],
            waiting=(*plan.segments[ready:], *plan.waiting),
            reason=reason,
            recheck_in_ms=recheck_in_ms,
            is_on_purpose=True,
        )

    def _tell_change(
        self, topic_partition: TopicPartition, before: StrategyInUse | None, policy: CompactionPolicy
    ) -> None:
        """Log a declared change of the strategy, once while it lasts."""
        if before is None:
            self._changes.pop(topic_partition, None)
            return
        change = str(before), str(rules_of(policy, 0).in_use)
        if self._changes.get(topic_partition) != change:
            self._changes[topic_partition] = change
            old, new = change
            EVENTS.warning("compaction_changes_strategy", partition=str(topic_partition), old=old, new=new)

    def _let_go(self, topic_partition: TopicPartition) -> None:
        """The topic is not compacted before the upload, or not any more: nothing of it waits, and no copy of it is committed."""
        with self._lock:
            self._groups.pop(topic_partition, None)
            self._changes.pop(topic_partition, None)
            for group in _groups_of(self._blocked.get(topic_partition, {}).values()):
                self.break_up(group, RawReason.RULE_CHANGED, NOT_COMPACTED)
            self._blocked.pop(topic_partition, None)

    def _keep_only(self, plan: PartitionPlan, now: _Situation) -> None:
        """Begin to hold what is new, and forget what the plan lacks, with the groups that this breaks."""
        before: dict[_Name, _Blocked] = dict(self._blocked.get(plan.files.topic_partition, {}))
        now_s = self.clock.monotonic_s()
        names = map(_name, plan.segments)
        blocked = {name: before.pop(name) if name in before else _Blocked(now_s) for name in names}
        self._blocked[plan.files.topic_partition] = blocked
        gone = "one of its segments was archived, deleted or changed"
        broken = {left.group: (RawReason.GROUP_CHANGED, gone) for left in before.values() if left.group}
        for group in _groups_of(blocked.values()):
            if group.base_offset < now.start_offset:
                deleted = f"records below offset {now.start_offset} were deleted since it was compacted"
                broken[group] = RawReason.GROUP_CHANGED, deleted
            elif change := _change(group, now.rule):
                broken[group] = change
            elif now.refusal:
                broken[group] = RawReason.STRATEGY_DIFFERS, now.refusal
        for group, (reason, detail) in broken.items():
            self.break_up(group, reason, detail)

    def _find(self, segment: SegmentFiles) -> _Blocked | None:
        return self._blocked.get(segment.topic_partition, {}).get(_name(segment))

    def _may_go(self, segment: SegmentFiles, now: _Situation) -> bool:
        blocked = self._find(segment)
        if blocked is None or blocked.group is not None or blocked.is_raw:
            return True
        reason = self._cannot_wait(segment, blocked, now)
        if reason is None:
            return False
        blocked.is_raw = True
        details = {RawReason.RULE_UNKNOWN: now.rule.unknown, RawReason.STRATEGY_DIFFERS: now.refusal}
        self.raw.note([segment], reason, details.get(reason, ""))
        return True

    def _cannot_wait(self, segment: SegmentFiles, blocked: _Blocked, now: _Situation) -> RawReason | None:
        if now.refusal:
            return RawReason.STRATEGY_DIFFERS
        if segment.start_position:
            return RawReason.PARTLY_ARCHIVED
        if segment.base_offset < now.start_offset:
            return RawReason.RECORDS_DELETED
        if segment.end_offset <= now.at_risk_end_offset:
            return RawReason.RETENTION_NEAR
        if segment.size_bytes > self.settings.max_job_bytes:
            return RawReason.TOO_LARGE
        is_over, unknown = self._left_ms(blocked) <= 0, now.rule.unknown
        if unknown and (unknown != NOT_REPORTED or is_over):
            return RawReason.RULE_UNKNOWN
        return RawReason.DELAY_OVER if is_over else None

    def _at_risk(
        self, segments: Sequence[SegmentFiles], deadline_of: Callable[[SegmentFiles], int | None]
    ) -> tuple[int, int]:
        """The end of those that cannot wait, and in how many milliseconds the next one cannot.

        What waits is not pinned. So it waits for half of the time at most that lies between its last write and its deletion.
        A deadline takes the read of an index, so few are asked for: the broker deletes from the beginning.
        """
        now_ms = self.clock.now_ms()

        def left_ms(segment: SegmentFiles) -> int:
            deadline_ms = deadline_of(segment)
            return NEVER_MS if deadline_ms is None else (newest_change_ms(segment) + deadline_ms) // 2 - now_ms

        at = bisect_right(segments, 0, key=left_ms)
        end_offset = segments[at - 1].end_offset if at else -1
        return end_offset, left_ms(segments[at]) if at < len(segments) else NEVER_MS

    def _left_ms(self, blocked: _Blocked) -> int:
        waited_ms = round((self.clock.monotonic_s() - blocked.since_s) * 1000)
        return self.settings.max_upload_delay_ms - waited_ms

    def take(self) -> tuple[RolledGroup, ...]:
        """What is to be compacted now. It is offered again after the next check if nothing came of it."""
        taken: list[RolledGroup] = []
        with self._lock:
            groups, self._groups = tuple(self._groups.values()), {}
            ready = _groups_of(chain.from_iterable(found.values() for found in self._blocked.values()))
            room = self.settings.max_job_bytes - sum(group.size_bytes for group in ready)
            for group in groups:
                # It may have been offered again while it was compacted.
                if all(map(self._still_waits, group.segments)):
                    group = _first_of(group, room)
                    room -= group.size_bytes
                    taken.append(group)
        return tuple(group for group in taken if group.segments)

    def _still_waits(self, segment: SegmentFiles) -> bool:
        blocked = self._find(segment)
        return blocked is not None and blocked.group is None and not blocked.is_raw

    def compacted(self, group: CopyGroup) -> None:
        """All copies of a group are ready. They are of no use unless every segment still waits for its own, by the same rule."""
        rule = self.rule_of(group.segments[0].topic_partition.topic)
        with self._lock:
            if not all(map(self._still_waits, group.segments)):
                gone = "one of them was archived, changed or removed in the meantime"
                self.break_up(group, RawReason.GROUP_CHANGED, gone)
            elif change := _change(group, rule):
                self.break_up(group, *change)
            else:
                for blocked in filter(None, map(self._find, group.segments)):
                    blocked.group = group

    def require_rule(self, group: CopyGroup, newest: StrategyInUse | None) -> None:
        """To be called right before the commit of the copies. Raises RuleChanged if the topic's rule is another one now,
        RuleUnknown if it is not known.

        `newest`: the strategy of the archive's newest compaction, which the rule may not be allowed to change.
        """
        topic_partition = group.segments[0].topic_partition
        rule = self.rule_of(topic_partition.topic)
        if rule.unknown:
            raise RuleUnknown(f"{topic_partition}: {rule.unknown}. The compacted copies are not committed")
        require_rule(topic_partition, group.policy, rule.policy, strategy_refusal(rule, newest))

    def unchanged(self, segments: Sequence[SegmentFiles]) -> None:
        """Compaction leaves these as they are: they go, unless one changed meanwhile."""
        with self._lock:
            for blocked in filter(None, map(self._find, segments)):
                blocked.is_raw = blocked.group is None

    def goes_raw(self, segments: Sequence[SegmentFiles], reason: RawReason, detail: str = "") -> None:
        """These go as they are, unless they go with a group."""
        with self._lock:
            waiting = [segment for segment in segments if self._still_waits(segment)]
            for blocked in filter(None, map(self._find, waiting)):
                blocked.is_raw = True
            self.raw.note(waiting, reason, detail)

    def group_from(self, segments: Sequence[SegmentFiles]) -> CopyGroup | None:
        """The group that the first of these segments goes with, None if it goes as it is.

        A group of which these are not the first segments goes as it is, too: none of its copies may go without the others.
        """
        with self._lock:
            blocked = self._find(segments[0])
            group = None if blocked is None else blocked.group
            if group is None:
                return None
            first = segments[: len(group.segments)]
            if list(map(_name, first)) == list(map(_name, group.segments)):
                return group
            self.break_up(group, RawReason.GROUP_CHANGED, "not all of its segments can be archived yet")
            return None

    def break_up(self, group: CopyGroup, reason: RawReason, detail: str) -> None:
        """All segments of the group go as they are. What is archived or gone already is passed over."""
        with self._lock:
            for blocked in filter(None, map(self._find, group.segments)):
                if blocked.group is group:
                    blocked.group = None
            group.discard()
            self.goes_raw(group.segments, reason, detail)

    def archived(self, segments: Sequence[SegmentFiles]) -> None:
        """One commit has archived these: their copies can go."""
        with self._lock:
            blocked = [self._blocked.get(s.topic_partition, {}).pop(_name(s), None) for s in segments]
        for group in _groups_of(filter(None, blocked)):
            group.discard()
            partition = group.segments[0].topic_partition
            self.invalid.note(partition, group.unkeyed, group.malformed_versions, OF_COPIES)


def _groups_of(blocked: Iterable[_Blocked]) -> set[CopyGroup]:
    return {found.group for found in blocked if found.group}


def _change(group: CopyGroup, rule: TopicRule) -> tuple[RawReason, str] | None:
    """Why a group's copies must not be committed under the rule that holds now, None if they may."""
    if rule.unknown:
        return RawReason.RULE_UNKNOWN, rule.unknown
    change = rule_change(group.policy, rule.policy)
    return (RawReason.RULE_CHANGED, change) if change else None


def _first_of(group: RolledGroup, size_bytes_max: int) -> RolledGroup:
    """Its first segments, as many as there is room for and one commit takes."""
    sizes = accumulate(segment.size_bytes for segment in group.segments[:GROUP_SEGMENTS_MAX])
    return replace(group, segments=group.segments[: sum(size_bytes <= size_bytes_max for size_bytes in sizes)])


def _name(segment: SegmentFiles) -> _Name:
    return segment.log, segment.base_offset, segment.end_offset
