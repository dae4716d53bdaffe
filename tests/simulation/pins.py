"""Whether what may be archived is pinned as soon as a sidecar has seen it, and stays so until it is archived."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from sidecar.archive.actions import Lost
from sidecar.archive.state import PartitionState
from sidecar.errors import PartitionError, SegmentChanged, SidecarError
from sidecar.host.pinned_files import PinnedFiles
from sidecar.model import ArchivedSegment, FileIdentity, PartitionFiles, SegmentFiles, TopicPartition
from sidecar.partition.domain_events import DomainEvent, PinReleased
from sidecar.partition.status import PartitionOutcome
from tests.simulation.cluster import Partition
from tests.simulation.findings import Finding
from tests.simulation.invariants import Checker
from tests.simulation.processes import Sidecar
from tests.simulation.replica import LogFile, identity_of
from tests.simulation.schedule import ENOUGH_PINS

_Leadership: TypeAlias = tuple[PinnedFiles, int, tuple[int, int]]
"""The pins of a process, and leader epoch and directory of a partition."""


@dataclass(slots=True)
class PinWatch:
    """Of all sidecars. `_pinned`: by broker and partition, what was pinned when a round ended that nothing had disturbed.

    `_touched`: by broker and partition, where the newest round has seen a listing that did not hold.
    """

    _pinned: dict[tuple[int, TopicPartition], tuple[_Leadership, list[SegmentFiles]]] = field(default_factory=dict)
    _touched: dict[tuple[int, TopicPartition], _Leadership] = field(default_factory=dict)

    def forget(self, broker: int, partition: TopicPartition | None = None) -> None:
        """Its sidecar may release pins: the broker spoke from the past, or a disk is nearly full or gone, or has lost a file.

        `partition`: only of this one.
        """
        is_kept = {key: key[0] != broker or partition not in (None, key[1]) for key in self._pinned}
        self._pinned = {key: found for key, found in self._pinned.items() if is_kept[key]}

    def check(
        self,
        sidecar: Sidecar,
        partitions: Iterable[Partition],
        checkers: Mapping[str, Checker],
        outcomes: Mapping[TopicPartition, PartitionOutcome],
    ) -> None:
        """After a round in which no log and no leader changed. Raises Finding."""
        for cluster in partitions:
            name, checker = cluster.topic_partition, checkers[cluster.lineage.root]
            key = sidecar.number, name
            if cluster.leader != sidecar.number or checker.is_forked:
                self._pinned.pop(key, None)
                continue
            files, held = cluster.led.files(), sidecar.pinned._pinned
            now = sidecar.pinned, cluster.leader_epoch, files.directory_id
            before, pinned = self._pinned.get(key, (None, []))
            pinned = pinned if before == now else []
            is_touched, is_first = cluster.led.is_touched, self._touched.get(key) != now
            is_plannable = _is_plannable(outcomes.get(name), also=SegmentChanged if is_touched else ())
            for segment in _missing(pinned, checker.state, held, checker.lost_by.get(sidecar.number, ())):
                if _is_replaced(segment.log.inode, cluster.led.replaced, held):
                    continue
                if not is_plannable and _is_touched(segment, files):
                    continue
                raise Finding("pin-released", f"sidecar {sidecar.number}: {segment}, {_ended(outcomes.get(name))}")
            # Retention deletes up to the high watermark, whatever transactions are open.
            ready = [found for found in files.segments if found.end_offset <= cluster.led.high_watermark]
            missing = list(_missing(ready, checker.state, held))
            if not is_touched:
                self._touched.pop(key, None)
            elif is_plannable:  # Else no file was opened that could show it.
                self._touched[key] = now
            if missing and not files.unstable and is_plannable and not (is_touched and is_first):
                raise Finding("not-pinned", f"sidecar {sidecar.number}: {missing[0]}, {_ended(outcomes.get(name))}")
            found = {segment.log: segment for segment in (*pinned, *ready) if segment.log in held}
            self._pinned[key] = now, [_with_its_own_end(sidecar, segment) for segment in found.values()]


@dataclass(slots=True)
class OrphanedPins:
    """Pins of the leader's sidecar that were of a topic when it was deleted. Each is archived yet, or reported when it goes."""

    _pins: list[tuple[Sidecar, PinnedFiles, FileIdentity, int, Checker]] = field(default_factory=list)

    def see(self, sidecar: Sidecar, checker: Checker) -> None:
        """The topic of a partition is deleted."""
        cluster, held = checker.cluster, sidecar.pinned
        if cluster.leader != sidecar.number or sidecar.setup.pins < ENOUGH_PINS:
            return
        for identity, descriptor in held._pinned.items():
            if identity.directory.name == str(cluster.topic_partition):
                batches = sidecar.disk.opened[descriptor][1].batches
                end_offset = batches[-1].end_offset if batches else 0
                self._pins.append((sidecar, held, identity, end_offset, checker))

    def check(self, events: Iterable[tuple[int, DomainEvent]]) -> None:
        """After each step. Raises Finding. `events`: of the step, with the number of the sidecar."""
        if not self._pins:
            return
        reported = {(number, event.path) for number, event in events if isinstance(event, PinReleased)}
        left, self._pins = self._pins, []
        for pin in left:
            sidecar, held, identity, end_offset, checker = pin
            archived_to = 0 if checker.state is None else checker.state.end_offset or 0
            if (
                sidecar.pinned is not held
                or archived_to >= end_offset
                or (sidecar.number, str(identity.path)) in reported
            ):
                continue  # The process has ended, or it is archived, or reported.
            if identity not in held._pinned:
                raise Finding("released-silently", f"sidecar {sidecar.number}: {identity.path}")
            self._pins.append(pin)


@dataclass(frozen=True, slots=True)
class _LostFile:
    """A pinned file that is gone from between others. `below`, `as_it_was`: the file before it, and its identity then."""

    sidecar: Sidecar
    held: PinnedFiles
    identity: FileIdentity
    end_offset: int
    below: LogFile
    as_it_was: FileIdentity
    leader_epoch: int
    checker: Checker

    def may_go_in_silence(self) -> bool:
        """Whether its process has ended, log or leader is another one, or its records were deleted or archived before."""
        cluster = self.checker.cluster
        if self.sidecar.pinned is not self.held or self.sidecar.setup.compacts or self.checker.is_forked:
            return True
        if (cluster.leader, cluster.leader_epoch) != (self.sidecar.number, self.leader_epoch):
            return True
        log = cluster.led
        if self.below not in log.segments or identity_of(log.directory, self.below) != self.as_it_was:
            return True  # For all that a listing shows, a cleaner has taken the lost file, too.
        if self.end_offset <= log.log_start_offset:
            return (
                True  # Its records were deleted on purpose: the file below it, which retention takes first, is there.
            )
        state = self.checker.state
        last = (one for one in (() if state is None else state.segments) if one.end_offset >= self.end_offset)
        covering = min(last, key=lambda segment: segment.end_offset, default=None)
        return covering is not None and covering.base_offset > self.below.base_offset


@dataclass(slots=True)
class LostFiles:
    """Pinned files of the leader's sidecar that are lost from between others. Each is reported when its pin goes."""

    _lost: list[_LostFile] = field(default_factory=list)

    def see(self, sidecar: Sidecar, checker: Checker, lost: LogFile) -> None:
        """A file is gone from the log of this sidecar's broker."""
        cluster, held = checker.cluster, sidecar.pinned
        log = cluster.replicas[sidecar.number]
        identity = identity_of(log.directory, lost)
        is_pinned = sidecar.setup.pins >= ENOUGH_PINS and identity in held._pinned
        end_offset = lost.batches[-1].end_offset if lost.batches else lost.base_offset
        # The sidecar may not know it: its archive was hidden.
        is_archived = checker.state is not None and end_offset <= (checker.state.end_offset or 0)
        if cluster.leader != sidecar.number or not is_pinned or is_archived:
            return
        below = max((file for file in log.segments if file.base_offset < lost.base_offset), key=_base_offset)
        as_it_was = identity_of(log.directory, below)
        found = _LostFile(sidecar, held, identity, end_offset, below, as_it_was, cluster.leader_epoch, checker)
        if not found.may_go_in_silence():
            self._lost.append(found)

    def forget(self, broker: int) -> None:
        """Its sidecar may release pins, see `PinWatch.forget`."""
        self._lost = [lost for lost in self._lost if lost.sidecar.number != broker]

    def check(self, events: Iterable[tuple[int, DomainEvent]]) -> None:
        """After each step; see `OrphanedPins.check`. Raises Finding."""
        if not self._lost:
            return
        reported = {(number, event.path) for number, event in events if isinstance(event, PinReleased)}
        left, self._lost = self._lost, []
        for lost in left:
            if (lost.sidecar.number, str(lost.identity.path)) in reported or lost.may_go_in_silence():
                continue
            if lost.identity not in lost.held._pinned:
                raise Finding("released-silently", f"sidecar {lost.sidecar.number}: {lost.identity.path}")
            self._lost.append(lost)


def _base_offset(file: LogFile) -> int:
    return file.base_offset


def _is_replaced(inode: int, replaced: Mapping[int, int], held: Iterable[FileIdentity]) -> bool:
    """Whether the file is pinned as it is now, or what the cleaner has left of it."""
    pinned = {file.inode for file in held}
    found: int | None = inode
    while found is not None and found not in pinned:
        found = replaced.get(found)
    return found is not None


def _is_touched(segment: SegmentFiles, files: PartitionFiles) -> bool:
    """Whether the file is still there, with another time: a new one, for the sidecar, which only a plan pins."""
    return any(found.log.inode == segment.log.inode and found.log != segment.log for found in files.segments)


def _with_its_own_end(sidecar: Sidecar, segment: SegmentFiles) -> SegmentFiles:
    """Where the file behind it was lost, the listing gives it the offsets of that file, too."""
    batches = sidecar.disk.opened[sidecar.pinned._pinned[segment.log]][1].batches
    return replace(segment, end_offset=batches[-1].end_offset if batches else segment.base_offset)


def require_none_pinned(sidecar: Sidecar, checker: Checker, lost: Sequence[Lost]) -> None:
    """What a commit is to record as lost, this sidecar does not have in files that retention deleted. Raises Finding."""
    if checker.is_forked:
        return
    log = checker.cluster.replicas[sidecar.number]
    for identity, descriptor in sidecar.pinned._pinned.items():
        file = sidecar.disk.opened[descriptor][1]
        is_as_listed = identity == identity_of(identity.directory, file)
        if identity.directory != log.directory or file.removed_ms is None or not is_as_listed:
            continue
        end_offset = file.batches[-1].end_offset if file.batches else file.base_offset
        spans = (found for found in lost if found.base_offset <= file.base_offset < end_offset <= found.end_offset)
        # What is gone from between others was lost by itself: retention takes a log from its beginning.
        if end_offset <= log.segments[0].base_offset and (span := next(spans, None)) is not None:
            raise Finding("lost-while-pinned", f"sidecar {sidecar.number}: {span}, {identity.path} is pinned")


def require_no_stale_pin(sidecar: Sidecar, cluster: Partition, outcome: PartitionOutcome | None) -> None:
    """After a round in which no log and no leader changed, each pin of a led log is of a file that is or was its own.

    Of a file in the directory as it is, of one that retention took from below it, or of one in whose place the cleaner, or a move
    to another log dir, has put a file that is not pinned. Raises Finding.
    """
    log = cluster.led
    if cluster.leader != sidecar.number or log.swap is not None or outcome is None or outcome.error is not None:
        return
    for identity, descriptor in sidecar.pinned._pinned.items():
        if identity.directory.name != str(cluster.topic_partition):
            continue
        file = sidecar.disk.opened[descriptor][1]
        pinned_to = file.batches[-1].end_offset if file.batches else file.base_offset
        is_there = file in log.segments and identity == identity_of(log.directory, file)
        # The log may have moved to another log dir since; a file of another topic has batches that this log never had.
        is_moved = identity.directory != log.directory and all(batch.content in log.contents for batch in file.batches)
        is_own = identity.directory == log.directory or is_moved
        is_taken = is_own and file.removed_ms is not None and pinned_to <= log.segments[0].base_offset
        by = next(
            (found.log for found in log.files().segments if found.base_offset < pinned_to <= found.end_offset), None
        )
        is_replaced = (is_moved or file.inode in log.replaced) and by is not None and by not in sidecar.pinned._pinned
        if not (is_there or is_taken or is_replaced):
            raise Finding("stale-pin", f"sidecar {sidecar.number}: {identity.path}, {_ended(outcome)}")


def _ended(outcome: PartitionOutcome | None) -> str:
    return "" if outcome is None else f"{outcome.error!r}, {outcome.reason!r}"


def _is_plannable(outcome: PartitionOutcome | None, also: type[SidecarError] | tuple[()]) -> bool:
    """Where a person has to decide first, nothing is planned. `also`: errors that need no person."""
    if outcome is None or isinstance(outcome.error, also):
        return True
    return not isinstance(outcome.error, PartitionError)


def _missing(
    segments: Iterable[SegmentFiles],
    archived: PartitionState | None,
    held: Mapping[FileIdentity, int],
    gaps: Sequence[Lost] = (),
) -> Iterator[SegmentFiles]:
    """Those that are not pinned, and reach above the archive, or into one of these gaps of it, which this sidecar recorded.

    What the archive begins above is another leader's work, which rolled elsewhere.
    """
    spans = () if archived is None else archived.segments
    end_offset = 0 if archived is None else archived.end_offset or 0
    for segment in segments:
        in_gaps = [(max(segment.base_offset, gap.base_offset), min(segment.end_offset, gap.end_offset)) for gap in gaps]
        is_open = segment.end_offset > end_offset or any(_lack(spans, *found) for found in in_gaps)
        if is_open and segment.log not in held:
            yield segment


def _lack(spans: Iterable[ArchivedSegment], base_offset: int, end_offset: int) -> bool:
    """Whether there are such offsets, and none of them is in these."""
    return base_offset < end_offset and not any(
        span.base_offset < end_offset and base_offset < span.end_offset for span in spans
    )
