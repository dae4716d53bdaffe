"""Compares the archive with the plain model after each step. Every rule that can be broken has a name, see `Finding`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from sidecar.archive.actions import Action, Add, Clean, Reinstate
from sidecar.archive.commit import decode_commit
from sidecar.archive.state import PartitionState
from sidecar.model import ArchivedSegment
from tests.histories.archive_view import ArchiveView
from tests.histories.broker import BrokerPartition
from tests.histories.findings import Finding
from tests.histories.history import Settings
from tests.histories.plain_log import Appended, Fate


@dataclass(slots=True)
class Done:
    """What was done since the last check.

    `compactions`: so many of the archive were begun. `undos`: so many undos committed, or may have. `now_ms`: by the clock of
    the last compaction.
    """

    compactions: int = 0
    undos: int = 0
    now_ms: int = 0


@dataclass(frozen=True, slots=True)
class Uncompacted:
    """The archive before its newest compaction: offsets of its records, those that it covered, and what was clean."""

    present: frozenset[int]
    covered: frozenset[int]
    clean: Clean | None
    tombstones: Mapping[int, int]


@dataclass(slots=True)
class Checker:
    """Follows the archive. `present`: the records that live segments held at the last check, by offset.

    `tombstones`: when each was first seen to be kept by a compaction of the archive. `group_starts`: by the base offset of a
    rolled segment, up to where records were deleted when its copy was made.
    """

    view: ArchiveView
    broker: BrokerPartition
    settings: Settings
    present: dict[int, Appended] = field(default_factory=dict)
    tombstones: dict[int, int] = field(default_factory=dict)
    group_starts: dict[int, int] = field(default_factory=dict)
    _covered: set[int] = field(default_factory=set)
    _deleted_before_offset: int = 0
    _boundaries: set[str] = field(default_factory=set)
    _state: PartitionState | None = None
    """Of the last check. That of the view may be newer: each process of a step looks for the archive's root."""
    _commits: set[str] = field(default_factory=set)
    _legacy_horizon_ms: int | None = None
    """Legacy tombstones in segments that are not newer may go; None where nothing was clean."""
    _segments_before: tuple[ArchivedSegment, ...] = ()
    _held: dict[str, frozenset[int]] = field(default_factory=dict)
    """By the id of every segment that was ever live, the offsets of its records."""
    _uncompacted: Uncompacted | None = None
    """None where several commits since the last check, or none, tell too little."""

    def check(self, done: Done) -> None:
        """Raises Finding."""
        before, state = self._state, self.view.follow()
        if state is None or state is before:
            return
        self._state = state
        self._segments_before = () if before is None else before.segments
        actions = self._new_actions()
        self._check_coverage(state)
        self._check_boundaries(state)
        self._check_sizes(state, before)
        present = self.view.records()
        covered = {
            offset
            for segment in state.segments
            for offset in range(segment.base_offset, segment.end_offset)
            if offset in self.broker.log.records
        }
        if not self._covered <= covered:
            raise Finding("coverage-shrank", f"offsets {sorted(self._covered - covered)[:5]}")
        self._note_held(actions)
        again = self._live_again(actions, done)
        known = {offset: self.broker.log.records[offset] for offset in (covered - self._covered) | again} | self.present
        self._check_contents(present, known)
        self._legacy_horizon_ms = self._legacy_horizon(state, before, done)
        self._check_dropped(known, present, state, done)
        if again:
            self._check_undone(frozenset(present), state, before, done)
        self._note_compaction(state, before, done)
        if state.clean != (None if before is None else before.clean):
            self._check_compacted(known, present, state, done)
        self.present = {offset: self.broker.log.records[offset] for offset in present}
        self._covered = covered
        self._deleted_before_offset = state.deleted_before_offset

    def _check_coverage(self, state: PartitionState) -> None:
        at = state.start_offset or 0
        if at and not self.broker.is_gone(0, at):
            raise Finding("silent-loss", f"the archive begins at {at}, which was on the disk from 0 on")
        spans = [(found.base_offset, found.end_offset, False) for found in state.segments]
        spans += [(found.base_offset, found.end_offset, True) for found in state.holes if found.end_offset > at]
        for begin, end, is_hole in sorted(spans):
            if begin != at:
                raise Finding("coverage", f"[{begin}, {end}) begins where {at} was expected")
            if is_hole and not self.broker.is_gone(begin, end):
                raise Finding("false-loss", f"[{begin}, {end}) is recorded as lost, and never went from the disk")
            at = end
        if at != (state.end_offset or 0):
            raise Finding("coverage", f"ends at {at}, the state says {state.end_offset}")
        if state.deleted_before_offset < self._deleted_before_offset:
            raise Finding("deletion-forgotten", f"{state.deleted_before_offset} < {self._deleted_before_offset}")
        if state.deleted_before_offset > self.broker.deleted_before_offset:
            raise Finding("false-deletion", f"{state.deleted_before_offset} > {self.broker.deleted_before_offset}")

    def _new_actions(self) -> list[Action]:
        """Of all commits since the last check."""
        bodies = [body for key, body in sorted(self.view.commits.items()) if key not in self._commits]
        self._commits |= self.view.commits.keys()
        return [action for body in bodies for action in decode_commit(body).actions]

    def _live_again(self, actions: Iterable[Action], done: Done) -> set[int]:
        """Offsets of records in segments that were replaced, and that a commit since the last check made live again."""
        ids = {action.segment.segment_id for action in actions if isinstance(action, Reinstate)}
        if ids and not done.undos:
            raise Finding("live-again", f"segments {sorted(ids)} were replaced, and nothing was undone")
        return set().union(*(self._held.get(segment_id, ()) for segment_id in ids))

    def _check_undone(
        self, present: frozenset[int], state: PartitionState, before: PartitionState | None, done: Done
    ) -> None:
        """The records are those before the newest compaction, and those archived since. It is no further clean than then."""
        was, self._uncompacted = self._uncompacted, None
        if was is None or done.compactions or done.undos != 1 or before is None:
            return
        self.tombstones = dict(was.tombstones)
        expected = was.present | (self.present.keys() - was.covered)
        found = present & self._covered
        if found != expected:
            raise Finding("not-undone", f"lacks {sorted(expected - found)[:5]}, has {sorted(found - expected)[:5]}")
        if state.clean and (was.clean is None or state.clean.end_offset > was.clean.end_offset):
            raise Finding("not-undone", f"clean is {state.clean}, it was {was.clean}")

    def _note_compaction(self, state: PartitionState, before: PartitionState | None, done: Done) -> None:
        added = state.next_number - (0 if before is None else before.next_number)
        replaced = {found.removed_by_commit for found in state.removed} - {
            found.removed_by_commit for found in (() if before is None else before.removed)
        }
        if not replaced or before is None:
            return
        is_plain = added == 1 and done.compactions == 1 and not done.undos
        covered, present = frozenset(self._covered), frozenset(self.present)
        self._uncompacted = Uncompacted(present, covered, before.clean, dict(self.tombstones)) if is_plain else None

    def _note_held(self, actions: Iterable[Action]) -> None:
        for action in actions:
            if isinstance(action, Add) and (offsets := self.view.offsets_of(action.segment)) is not None:
                self._held[action.segment.segment_id] = offsets

    def _check_boundaries(self, state: PartitionState) -> None:
        if state.holes or state.start_offset:
            return  # What is behind a gap nobody knows for certain.
        for segment in state.segments:
            expected = self.broker.boundaries.get(segment.end_offset)
            if segment.segment_id in self._boundaries or expected is None:
                continue
            found = self.view.producers(segment)
            if found != expected:
                raise Finding("producer-state", f"{segment}: {found}, a replay gives {expected}")
            self._boundaries.add(segment.segment_id)

    def _check_sizes(self, state: PartitionState, before: PartitionState | None) -> None:
        old = {} if before is None else {found.segment_id: found for found in before.segments}
        for segment in state.segments:
            sources = [
                found
                for found in old.values()
                if segment.base_offset <= found.base_offset and found.end_offset <= segment.end_offset
            ]
            size_bytes = segment.parts[0].size_bytes
            if segment.segment_id in old or len(sources) < 2:
                continue
            if size_bytes > self.settings.segment_bytes and segment.batch_count > 1:
                raise Finding("output-too-large", f"{segment}: {size_bytes} bytes of {self.settings.segment_bytes}")

    def _check_contents(self, present: Mapping[int, Appended], known: Mapping[int, Appended]) -> None:
        for offset, record in present.items():
            expected = known.get(offset)
            if expected is None:
                raise Finding("came-back", f"offset {offset} was not in the archive before, nor is it new")
            if record != replace(expected, transaction=None, is_legacy=False):
                raise Finding("other-content", f"offset {offset}: {record}, appended was {expected}")

    def _check_dropped(
        self, known: Mapping[int, Appended], present: Mapping[int, Appended], state: PartitionState, done: Done
    ) -> None:
        """Every record that is not there any more must have lost to one that is, or have been aborted or deleted."""
        by_key: defaultdict[bytes, list[Appended]] = defaultdict(list)
        for record in known.values():
            if record.key is not None:
                by_key[record.key].append(record)
        for offset in sorted(known.keys() - present.keys()):
            record = known[offset]
            if not (done.compactions or self.settings.before_upload):
                raise Finding("record-lost", f"{record} is gone, and nothing was compacted")
            if not self._may_go(record, by_key.get(record.key or b"", ()), present, state, done):
                rivals = [found for found in by_key.get(record.key or b"", ()) if found is not record]
                raise Finding("record-lost", f"{_shown(record)} is gone; of its key: {_shown(*rivals)}")

    def _may_go(
        self,
        record: Appended,
        rivals: Iterable[Appended],
        present: Mapping[int, Appended],
        state: PartitionState,
        done: Done,
    ) -> bool:
        fate = self.broker.log.fate(record)
        if fate is Fate.OPEN:
            return False
        if fate is Fate.ABORTED or record.offset < state.deleted_before_offset:
            return True
        if record.key is None:
            return True
        is_new = record.offset not in self.present
        if is_new and record.offset < self.broker.deleted_before_offset:
            return True
        lag_ms = self.settings.min_compaction_lag_ms
        if lag_ms and record.timestamp_ms > done.now_ms - lag_ms and not is_new:
            return False
        strategy = self.settings.strategy
        decided_from = self._decided_from(record, done)
        if record.is_tombstone and self._has_expired(record, done):
            return True
        return any(
            rival.rank(strategy) > record.rank(strategy)
            and self.broker.log.fate(rival) is Fate.COMMITTED
            and rival.offset >= decided_from
            and (
                rival.offset in present
                or (rival.is_tombstone and self._has_expired(rival, done))
                or rival.offset < self.broker.deleted_before_offset
            )
            for rival in rivals
        )

    def _decided_from(self, record: Appended, done: Done) -> int:
        """Up to where records were deleted when it was decided that this one lost."""
        starts = [self._deleted_before_offset] if done.compactions else []
        base_offset = max((base for base in self.group_starts if base <= record.offset), default=None)
        if base_offset is not None and record.offset not in self.present:
            starts.append(self.group_starts[base_offset])
        return min(starts, default=0)

    def _has_expired(self, tombstone: Appended, done: Done) -> bool:
        if tombstone.is_legacy:
            horizon_ms = self._legacy_horizon_ms
            return horizon_ms is not None and self._segment_time_ms(tombstone.offset) <= horizon_ms
        if done.compactions > 1 and not self.settings.delete_retention_ms:
            return True  # One of them kept it, the other found that its time had passed.
        kept_ms = self.tombstones.get(tombstone.offset)
        return kept_ms is not None and done.now_ms >= kept_ms + self.settings.delete_retention_ms

    def _legacy_horizon(self, state: PartitionState, before: PartitionState | None, done: Done) -> int | None:
        """A batch of magic 0 or 1 has no delete horizon, and no clock counts: only the times of files do.

        Of several compactions since the last check, the later ones begin with what the earlier ones made clean. Source:
        LogCleaner.doClean, legacyDeleteHorizonMs; cleanSegments, retainLegacyDeletesAndTxnMarkers.
        """
        horizons_ms = []
        for found in (before, state) if done.compactions > 1 else (before,):
            if found is None or found.clean is None:
                continue
            clean = [segment for segment in found.segments if segment.end_offset <= found.clean_end_offset]
            for last in clean[-1:]:
                last_ms = self.broker.last_modified_ms(last.base_offset, last.end_offset)
                horizons_ms.append(last_ms - self.settings.delete_retention_ms)
        return max(horizons_ms, default=None)

    def _segment_time_ms(self, offset: int) -> int:
        """Of the segment in which the record was at the last check; else of the broker's file."""
        spans = [(found.base_offset, found.end_offset) for found in self._segments_before]
        begin, end = next((span for span in spans if offset in range(*span)), (offset, offset + 1))
        return self.broker.last_modified_ms(begin, end)

    def _check_compacted(
        self, known: Mapping[int, Appended], present: Mapping[int, Appended], state: PartitionState, done: Done
    ) -> None:
        """Below the clean end no loser is left, and nothing that was aborted.

        Whether a record that was deleted in the meantime still won is up to who was first.
        """
        best: dict[bytes, Appended] = {}
        strategy, end_offset = self.settings.strategy, state.clean_end_offset
        begin_offset = state.deleted_before_offset
        for record in known.values():
            if not begin_offset <= record.offset < end_offset:
                continue
            fate = self._archived_fate(record, state)
            if fate is Fate.ABORTED and record.offset in present:
                raise Finding("aborted-stays", f"{_shown(record)} below {end_offset}")
            if fate is Fate.COMMITTED and record.key is not None:
                best[record.key] = max(best.get(record.key, record), record, key=lambda found: found.rank(strategy))
        for record in known.values():
            if record.key is None or record.offset not in present or record.offset not in range(end_offset):
                continue
            if record.is_tombstone:
                # Also where a gap hides how its transaction ended: it stayed, and so its batch got a horizon, which never moves.
                self.tombstones.setdefault(record.offset, done.now_ms)
            winner = best.get(record.key)
            if record.offset < begin_offset or self._archived_fate(record, state) is None:
                continue
            if winner is not None and winner.offset != record.offset:
                raise Finding("loser-stays", f"{_shown(record)} though {_shown(winner)} below {end_offset}")

    def _archived_fate(self, record: Appended, state: PartitionState) -> Fate | None:
        """As far as the archive can tell: None where a gap lies in the transaction, which may have held another end of it."""
        if record.transaction is None:
            return Fate.COMMITTED
        marker = self.broker.log.markers.get(record.transaction)
        begin = self.broker.log.begins[record.transaction]
        end = self.broker.log.end_offset if marker is None else marker[0]
        if any(begin < hole.end_offset and hole.base_offset <= end for hole in state.holes):
            return None
        if marker is None or end >= (state.end_offset or 0):
            return Fate.OPEN
        return Fate.COMMITTED if marker[1] else Fate.ABORTED

    def is_too_narrow(self, marker_count: int, open_at: int, base_offset: int, end_offset: int) -> bool:
        """Whether offsets are lost, and fewer than transactions are open where they begin."""
        state = self.view.state
        assert state is not None
        log, gap = self.broker.log, range(base_offset, end_offset)
        lost = {offset for hole in state.holes for offset in range(hole.base_offset, hole.end_offset)}
        ends = {number: offset for number, (offset, _) in log.markers.items()}
        waiting = [n for n, begin in log.begins.items() if begin < base_offset <= ends.get(n, log.end_offset)]
        return open_at == base_offset and lost.issuperset(gap) and len(gap) < marker_count <= len(waiting)

    def check_restored(self, visible: Mapping[int, Appended], start_offset: int) -> None:
        """A read_committed consumer of a restored log sees what the archive kept, and nothing else."""
        state = self.view.state
        assert state is not None
        start_offset = max(start_offset, state.deleted_before_offset)
        for offset in sorted(visible.keys() | self.present.keys()):
            record = self.broker.log.records[offset]
            fate = self._archived_fate(record, state)
            if fate is None:
                continue
            is_expected = offset in self.present and offset >= start_offset and fate is Fate.COMMITTED
            if is_expected and offset not in visible:
                raise Finding("not-restored", _shown(record))
            if offset in visible and not is_expected and offset >= start_offset:
                raise Finding("restored-too-much", f"{_shown(record)}, {fate}")
            if offset in visible and visible[offset] != replace(record, transaction=None, is_legacy=False):
                raise Finding("restored-otherwise", f"{visible[offset]}, appended was {_shown(record)}")


def _shown(*records: Appended) -> str:
    return ", ".join(
        f"{found.offset}:{(found.key or b'').decode()}={'-' if found.value is None else len(found.value)}"
        f"@{found.timestamp_ms}v{found.version}{'' if found.transaction is None else f' txn {found.transaction}'}"
        for found in records
    )
