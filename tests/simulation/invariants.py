"""What must hold after every step. Every rule that can be broken has a name, see `Finding`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from crc32c import crc32c

from producer_state.snapshot import read_snapshot
from sidecar.archive.actions import Action, Add, DeleteRecords, Lost, Purge, Remove
from sidecar.archive.bundle import cut_parts
from sidecar.archive.commit import Commit, Writer, digest
from sidecar.archive.fold import fold
from sidecar.archive.keys import below, commit_key, parse_segment_key
from sidecar.archive.state import PartitionState, empty_state
from sidecar.errors import SidecarError
from sidecar.model import ArchivedSegment, ObjectKey, PartName
from tests.simulation.batches import Batch, decode, emptied
from tests.simulation.cluster import Partition
from tests.simulation.decision import HEADER
from tests.simulation.findings import Finding
from tests.simulation.headers import ADDED
from tests.simulation.retained import compaction_of, is_record, retained
from tests.simulation.store import SimStore


def _may_drop(action: Action) -> bool:
    """Whether records may be missing after an action of a commit that were archived, or are in the segments that it adds."""
    return isinstance(action, Remove) or (isinstance(action, Add) and action.segment.generation > 0)


def _is_left_of(batch: Batch, raw: Batch) -> bool:
    """Whether compaction can have left this of a raw batch."""
    return batch.raw_content == raw.content and batch in (raw, emptied(raw))


_entries_of: Final = lru_cache(read_snapshot)


@dataclass(slots=True)
class Checker:
    """Follows a lineage past all faults.

    `state`: as of the last check, None while nothing is archived. `losses`: that commits said since somebody emptied it.
    `losses_alone`: those of commits that add nothing, which are reported at once.
    `lost_by`: all of them, by the broker next to which it was said. `writers`: who added a segment, by its id. `is_forked`: it
    has offsets that an unclean election has lost in the log. `cut_epoch`: the leader epoch of the last one. `rules`: by the nonce
    of a compaction's commit, the strategies of the topic's configs that its process may have gone by. `strategy_changes`: commits
    of the archive's compaction that say another strategy than the one before, since somebody emptied it.
    """

    store: SimStore
    cluster: Partition
    decode: Callable[[bytes], Commit]
    grace_period_ms: int
    state: PartitionState | None = None
    losses: list[Lost] = field(default_factory=list)
    losses_alone: list[Lost] = field(default_factory=list)
    lost_by: dict[int, list[Lost]] = field(default_factory=dict)
    writers: dict[str, Writer] = field(default_factory=dict)
    is_forked: bool = False
    cut_epoch: int = -1
    rules: dict[str, tuple[str | None, ...]] = field(default_factory=dict)
    strategy_changes: list[str] = field(default_factory=list)
    _beaten: dict[int, Batch] = field(default_factory=dict)
    """By the content of a batch, the one of its key that a compaction retained instead."""
    _is_unjudged: bool = False
    _commits: dict[str, bytes] = field(default_factory=dict)
    _epoch: int = -1
    _sound: dict[str, bytes] = field(default_factory=dict)
    _covered_to: int = 0

    @property
    def root(self) -> ObjectKey:
        """Of the lineage."""
        return self.cluster.lineage.root

    def check(self, changed: Collection[str]) -> None:
        """Raises Finding. Args: changed: keys of this lineage that were written or deleted since the last time."""
        commits = sorted(key for key in changed if "/commits/" in key)
        for key in commits:
            if key in self._commits and self.store.objects.get(key) is not self._commits[key]:
                raise Finding("commit-changed", f"{key} is gone or another")
        new = [key for key in commits if key not in self._commits and key in self.store.objects]
        before = self.state
        for key in new:
            self._take(key)
        if self.state is None:
            return
        known = set(() if before is None else map(id, before.segments))
        for segment in self.state.segments:
            if id(segment) not in known:
                self._check_objects(segment)
        self._check_changed([key for key in changed if "/segments/" in key and self._is_other(key)], self.state)
        if new:
            self._check_coverage(self.state)

    def _is_other(self, key: str) -> bool:
        """Whether an object is gone, or not what was found sound."""
        return (
            key not in self.store.objects
            or self._sound.get(key, self.store.objects[key]) is not self.store.objects[key]
        )

    def _check_changed(self, keys: Collection[str], state: PartitionState) -> None:
        ids = {found.segment_id: key for key in keys if (found := parse_segment_key(key.removeprefix(f"{self.root}/")))}
        if not ids:
            return
        for segment in state.segments:
            if segment.segment_id in ids:
                self._check_objects(segment)
        for removed in state.removed:
            key = ids.get(removed.segment_id)
            if key is not None and key not in self.store.objects:
                raise Finding("deleted-unpurged", f"{key}: it may be reinstated")

    def note_cut(self, cut_offset: int) -> None:
        """An unclean election has lost all from an offset on. What is archived of that no log has any more."""
        self.cut_epoch = self.cluster.leader_epoch
        if self.state is not None and (self.state.end_offset or 0) > cut_offset:
            self.is_forked = True

    def _take(self, key: str) -> None:
        """A commit is stored. All that are stored can be folded: readers will do no other."""
        body = self.store.objects[key]
        commit = self.decode(body)
        self._check_commit(key, commit)
        self._commits[key] = body
        before = self.state or empty_state(self.cluster.lineage)
        try:
            self.state = fold(before, [(commit, digest(body))])
        except SidecarError as error:
            raise Finding("unreadable", f"{key}: {error}") from error
        if self.is_forked and commit.writer.leader_epoch >= self.cut_epoch:
            self._check_continuation(before, commit)
        # After each commit, and not only after the last one: readers may come in between.
        self._judge(key, commit, before, self.state)
        is_judged = not (self.is_forked or self._is_unjudged)
        if is_judged and any(map(_may_drop, commit.actions)):
            self._check_records(self.state)

    def _check_commit(self, key: str, commit: Commit) -> None:
        name = key.rpartition("/")[2]
        if int(name.removesuffix(".json")) != len(self._commits):
            raise Finding("commit-skipped", f"{key} after {len(self._commits)} others")
        if commit.writer.leader_epoch < self._epoch:
            raise Finding("epoch-fell", f"{key}: {commit.writer.leader_epoch} after {self._epoch}")
        self._epoch = commit.writer.leader_epoch
        for action in commit.actions:
            if isinstance(action, Purge):
                self._check_purge(key, action)
            elif isinstance(action, Lost):
                self._check_loss(key, commit, action)
                self.losses.append(action)
                if not any(isinstance(other, Add) for other in commit.actions):
                    self.losses_alone.append(action)
                self.lost_by.setdefault(commit.writer.broker_id, []).append(action)
            elif isinstance(action, DeleteRecords):
                known = 0 if self.state is None else self.state.deleted_before_offset
                if action.before_offset <= known:
                    raise Finding("deletion-repeated", f"{key}: {action}, {known} is known")
            elif isinstance(action, Add):
                self.writers[action.segment.segment_id] = commit.writer

    def _check_loss(self, key: str, commit: Commit, lost: Lost) -> None:
        log = self.cluster.replicas[commit.writer.broker_id]
        there = (batch for batch in log.batches() if batch.end_offset > log.log_start_offset)
        is_there = any(batch.base_offset < lost.end_offset and lost.base_offset < batch.end_offset for batch in there)
        if self.cluster.is_cleaned:  # What its cleaner took is not lost: the segment is there.
            bases = [file.base_offset for file in log.segments]
            spans = zip(bases, [*bases[1:], log.end_offset], strict=True)
            is_there |= any(
                max(begin, log.log_start_offset) < lost.end_offset and lost.base_offset < end for begin, end in spans
            )
        if is_there or lost.end_offset > log.end_offset:
            raise Finding("false-loss", f"{key}: {lost}, broker {commit.writer.broker_id} has it")

    def _check_purge(self, key: str, purge: Purge) -> None:
        """Nothing goes before its grace period is over, by the store's clock."""
        assert self.state is not None
        for found in self.state.removed:
            if found.segment_id in purge.segment_ids:
                since_ms = self.store.modified_ms[below(self.root, commit_key(found.removed_by_commit))]
                if self.store.modified_ms[key] - since_ms < self.grace_period_ms + found.keep_ms:
                    raise Finding("purged-too-early", f"{key}: {found}")

    def _check_continuation(self, before: PartitionState, commit: Commit) -> None:
        """Nothing is added on top of what the log has no more, as far as the log shows that."""
        last = before.last_segment
        added = [action.segment.end_offset for action in commit.actions if isinstance(action, Add)]
        if last is None or max(added, default=0) <= last.end_offset:
            return
        archived = decode(self.store.objects[below(self.root, last.log_key)])[-1]
        log = self.cluster.replicas[commit.writer.broker_id]
        there = [batch for batch in log.batches() if batch.base_offset <= archived.last_offset < batch.end_offset]
        if there and there[0].content != archived.raw_content:
            raise Finding(
                "appended-to-fork", f"commit {commit.number}: the archive ends with {archived}, the log has {there}"
            )

    def _check_objects(self, segment: ArchivedSegment) -> None:
        """They exist, with size and checksums, and what they hold was checked when they were new."""
        log_key, indexes_key = below(self.root, segment.log_key), below(self.root, segment.indexes_key)
        for key in (log_key, indexes_key):
            body = self.store.objects.get(key)
            if body is None:
                raise Finding("live-object-missing", f"{segment}: {key}")
            if key in self.store.doomed:
                raise Finding("live-object-missing", f"{segment}: at any time, {key}")
            if self._sound.get(key) is not body:
                parts = [part for part in segment.parts if (part.name is PartName.LOG) == (key == log_key)]
                if sum([part.size_bytes for part in parts]) != len(body):
                    raise Finding("live-object-damaged", f"{segment}: {key} has {len(body)} bytes")
                for part in parts:
                    if crc32c(body[part.position : part.position + part.size_bytes]) != part.crc32c:
                        raise Finding("live-object-damaged", f"{segment}: checksum of {part.name}")
                if key == log_key:
                    self._check_content(segment, body)
                self._sound[key] = body

    def _check_content(self, segment: ArchivedSegment, body: bytes) -> None:
        """Only what was below the last stable offset of a leader, and all of that."""
        truth, found = self.cluster.truth, list(decode(body))
        if truth.was_lost(found):
            self.is_forked = True  # It was sent before it was lost.
            return
        if segment.end_offset > truth.end_offset:
            raise Finding("uncommitted", f"{segment}: committed is up to {truth.end_offset}")
        expected = truth.between(segment.base_offset, segment.end_offset)
        if segment.generation:
            others = iter(expected)
            if not all(any(_is_left_of(batch, other) for other in others) for batch in found):  # In this order.
                raise Finding("other-content", f"{segment}: {found}, should be some of {expected}")
            self._check_transactions(segment)
            return
        if truth.cleaned:
            added = {batch.base_offset for batch in found if batch.content & ADDED}
            others = iter(batch for batch in found if batch.base_offset not in added)
            next_found = next(others, None)
            for batch in expected:
                if batch == next_found:
                    next_found = next(others, None)
                elif batch.content not in truth.cleaned and batch.base_offset not in added:
                    raise Finding("other-content", f"{segment}: {found} lacks {batch}, which no cleaner took")
            if next_found is not None:
                raise Finding("other-content", f"{segment}: {found}, should be some of {expected}")
            self._check_transactions(segment)
            return
        if found != expected:
            raise Finding("other-content", f"{segment}: {found}, should be {expected}")
        at = segment.base_offset
        for batch in found:
            if batch.base_offset != at:
                raise Finding("other-content", f"{segment}: nothing at {at}")
            at = batch.end_offset
        if at != segment.end_offset:
            raise Finding("other-content", f"{segment}: its batches end at {at}")
        self._check_transactions(segment)

    def _judge(self, key: str, commit: Commit, before: PartitionState, after: PartitionState) -> None:
        """A compaction went by the topic's strategy, and retained of each key just the record that this strategy names."""
        found = compaction_of(commit)
        if found is None:
            return
        said, span = found
        rules = self.rules[commit.nonce]
        known = {(rule or "offset", HEADER if rule == "header" else "") for rule in rules}
        if len(said) != 1 or not said <= known:
            raise Finding("other-strategy", f"{key}: {said}, the topic's is {rules}")
        (strategy,) = said
        is_of_archive = (before.end_offset or 0) > span[0]
        newest = before.clean or next((one for one in reversed(before.segments) if one.strategy is not None), None)
        if newest is not None and (newest.strategy, newest.strategy_parameters.get("header", "")) != strategy:
            if all(rule is None for rule in rules):
                raise Finding("strategy-mixed", f"{key}: {strategy} after {newest.strategy}, and nothing declares it")
            if is_of_archive:
                self.strategy_changes.append(key)
        sources = self._batches(before, span) if is_of_archive else self.cluster.truth.between(*span)
        results = self._batches(after, span)
        if self.is_forked or self.cluster.truth.cleaned or sources is None or results is None:
            self._is_unjudged = True
            return
        candidates = (batch for batch in sources if batch.end_offset > before.deleted_before_offset)
        self._judge_records(key, strategy[0], [batch for batch in candidates if self._is_committed(batch)], results)

    def _judge_records(self, key: str, strategy: str, candidates: Sequence[Batch], results: Sequence[Batch]) -> None:
        winners = retained(candidates, strategy)
        kept = {batch.content for batch in results if is_record(batch)}
        for winner in winners.values():
            if winner.content not in kept:
                raise Finding("record-lost", f"{key}: {winner} is the one that strategy {strategy} retains")
        if len(kept) > len(winners):
            raise Finding("loser-kept", f"{key}: {kept - {found.content for found in winners.values()}}")
        self._beaten |= {batch.content: winners[batch.key] for batch in candidates if batch.content not in kept}

    def _batches(self, state: PartitionState, span: tuple[int, int]) -> list[Batch] | None:
        """What the live segments there have, None where the objects of one that was replaced since are gone."""
        found: list[Batch] = []
        for segment in state.segments:
            if span[0] <= segment.base_offset and segment.end_offset <= span[1]:
                log_key = below(self.root, segment.log_key)
                body = self._sound.get(log_key) or self.store.objects.get(log_key)
                if body is None:
                    return None
                found += (batch for batch in decode(body) if span[0] <= batch.base_offset < span[1])
        return found

    def _is_committed(self, batch: Batch) -> bool:
        is_decided = batch.transaction < 0 or self.cluster.truth.commits(batch.transaction)
        return is_record(batch) and is_decided

    def _check_records(self, state: PartitionState) -> None:
        """What is missing lost to a record of its key that is archived, or that was archived and lost to another one in turn."""
        truth, archived = self.cluster.truth, set[int]()
        for segment in state.segments:
            body = self.store.objects.get(below(self.root, segment.log_key), b"")
            archived.update(batch.content for batch in decode(body))
        spans = [(segment.base_offset, segment.end_offset) for segment in state.segments]
        for batch in truth.line:
            if batch.content in archived or not self._is_committed(batch) or self._is_excused(batch):
                continue
            if any(begin <= batch.base_offset < end for begin, end in spans):
                self._require_beaten(batch, archived)

    def _is_excused(self, batch: Batch) -> bool:
        """Also where an unclean election has lost an abort by which a compaction decided, and a later marker commits."""
        truth = self.cluster.truth
        is_gone = batch.content in truth.cleaned or batch.base_offset < truth.deleted_before_offset
        return is_gone or batch.transaction in truth.reopened

    def _require_beaten(self, batch: Batch, archived: Collection[int]) -> None:
        seen, at = set[int](), batch
        while at.content not in archived and not (seen and self._is_excused(at)):
            seen.add(at.content)
            winner = self._beaten.get(at.content)
            if winner is None or winner.content in seen:
                raise Finding("record-lost", f"{batch}: no compaction retained another one of its key that is archived")
            at = winner

    def _check_transactions(self, segment: ArchivedSegment) -> None:
        """None that it has begun is open in all that is committed now, or was for a leader before an unclean election."""
        truth, writer = self.cluster.truth, self.writers.get(segment.segment_id)
        # A compaction decides by the markers in the archive, of which a new leader's log may lack some.
        is_of_before = segment.generation > 0 or (writer is not None and writer.leader_epoch < self.cut_epoch)
        knew_markers = truth.reopened if is_of_before else ()
        # A leader calls all stable that lies below its log start, also what its directory still has.
        replicas = self.cluster.replicas.values()
        starts = (one.log_start_offset for one in replicas if one.segments[0].base_offset <= segment.base_offset)
        deleted_before_offset = max(truth.deleted_before_offset, *starts, 0)
        for batch in truth.between(segment.base_offset, segment.end_offset):
            is_deleted = batch.base_offset < deleted_before_offset
            is_decided = batch.transaction < 0 or batch.transaction in truth.ends or batch.transaction in knew_markers
            if not (is_decided or is_deleted):
                raise Finding("undecided", f"{segment}: transaction {batch.transaction} of {batch}")

    def _check_coverage(self, state: PartitionState) -> None:
        at = state.start_offset or 0
        spans = [(found.base_offset, found.end_offset) for found in state.segments]
        spans += [(found.base_offset, found.end_offset) for found in state.holes if found.end_offset > at]
        for begin, end in sorted(spans):
            if begin != at:
                raise Finding("coverage", f"[{begin}, {end}) begins where {at} was expected")
            at = end
        if at != (state.end_offset or 0):
            raise Finding("coverage", f"ends at {at}, the state says {state.end_offset}")
        if at < self._covered_to:
            raise Finding("coverage-shrank", f"ends at {at}, before at {self._covered_to}")
        self._covered_to = at
        if state.deleted_before_offset > self.cluster.truth.deleted_before_offset:
            was = self.cluster.truth.deleted_before_offset
            raise Finding("false-deletion", f"{state.deleted_before_offset} is said to be deleted, up to {was} was")
        is_whole = not state.holes and state.start_offset == 0 and not self.cluster.truth.cleaned
        if is_whole and not self.is_forked and state.segments:
            self._check_producers(state.segments[-1])
        if self.cluster.truth.cleaned and not self.is_forked and not self.cluster.truth.reopened:
            self._check_readable(state)

    def _check_readable(self, state: PartitionState) -> None:
        """Readers of committed records see no aborted one, and all but those that a cleaner or retention took from the log."""
        truth, begun, readable, hidden = self.cluster.truth, dict[int, list[Batch]](), list[Batch](), list[Batch]()
        at = 0
        for segment in state.segments:
            if segment.base_offset != at:
                begun.clear()  # A restore aborts what is open where offsets are lost.
            at = segment.end_offset
            for batch in decode(self.store.objects[below(self.root, segment.log_key)]):
                if batch.is_marker:
                    (readable if batch.commits else hidden).extend(begun.pop(batch.producer_id, ()))
                elif batch.transaction >= 0:
                    begun.setdefault(batch.producer_id, []).append(batch)
        first_offset = max(log.segments[0].base_offset for log in self.cluster.replicas.values())
        for batch in readable:
            if batch.transaction in truth.ends and not truth.commits(batch.transaction):
                raise Finding("aborted-readable", f"{batch}, ended by {truth.ends[batch.transaction]}")
        for batch in hidden:
            is_gone = batch.content in truth.cleaned or batch.base_offset < first_offset
            if truth.commits(batch.transaction) and not is_gone:
                raise Finding("committed-hidden", f"{batch}, ended by {truth.ends[batch.transaction]}")

    def _check_producers(self, segment: ArchivedSegment) -> None:
        """What is known of producers at the archive's end is what a replay of all of it gives."""
        parts = cut_parts(self.store.objects[below(self.root, segment.indexes_key)], segment)
        found: Mapping[int, object] = {
            entry.producer_id: entry for entry in _entries_of(bytes(parts[PartName.PRODUCER_SNAPSHOT]))
        }
        expected = self.cluster.truth.producers_below(segment.end_offset)
        if found != expected:
            raise Finding("producer-state", f"{segment}: {found}, should be {expected}")
