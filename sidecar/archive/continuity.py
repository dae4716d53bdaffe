"""Does a local log continue an archived one? Decided from offsets, leader epochs and batch checksums.

Needed where topic ids do not decide: a re-created topic has the same name and may even have the same
segment boundaries. Nothing here guesses: without a matching batch the verdict is at best that nothing contradicts.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from sidecar.archive.keys import NO_TOPIC_ID, Lineage
from sidecar.archive.state import PartitionState, empty_state
from sidecar.errors import LineageUnknown
from sidecar.model import LeaderEpoch, RawBatches, TopicPartition


class Verdict(StrEnum):
    """`PROVEN`: a batch of the archive was found in the local log. `PLAUSIBLE`: nothing contradicts, nothing proves."""

    PROVEN = "proven"
    PLAUSIBLE = "plausible"
    CONTRADICTED = "contradicted"


@dataclass(frozen=True, slots=True)
class ContinuityCheck:
    """A verdict and its reason, for people. `is_lasting`: a contradiction that nothing but another log explains.

    Where files are missing, other batches than the archived ones are compared.
    """

    verdict: Verdict
    reason: str
    is_lasting: bool = True


@dataclass(frozen=True, slots=True)
class Probe:
    """A batch to look up in the local log: the last one (`last`) or the first one of `[base_offset, end_offset)`.

    The last batch is the one with the highest last offset below `end_offset`, the first one that with the lowest last
    offset at or above `base_offset`. `crc` is the archived batch's checksum field. `is_raw`: as the broker had it.
    What a compaction left of it, perhaps only a restored log has: another batch in its place contradicts nothing.
    """

    base_offset: int
    end_offset: int
    last: bool
    crc: int
    is_raw: bool = True


class LocalBatch(NamedTuple):
    """A batch of the local log. `crc`: its checksum field. `leader_epoch`: -1 in formats before v2."""

    base_offset: int
    last_offset: int
    crc: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class LocalLog:
    """What the local log shows. `end_offset` (exclusive) may be a lower bound of the log's real end.

    `leader_epochs` is the whole of `leader-epoch-checkpoint`. `may_be_cleaned`: the topic is or was compacted, so that
    batches may have been rewritten and a differing checksum proves nothing. `is_compacted`: the same of other replicas only,
    from which the archived batch may be. `known_directory`: by our own journal,
    segments of this lineage came from this very directory, and not from one made before it under its name and inode.
    `has_differed`: by our own journal, the log did not continue the archived one at an earlier check. It is in the same directory
    now, or in one that nothing was archived from. Retention deletes what shows it.
    """

    start_offset: int
    end_offset: int
    leader_epochs: tuple[LeaderEpoch, ...]
    may_be_cleaned: bool = False
    is_compacted: bool = False
    known_directory: bool = False
    has_differed: bool = False


def probes(archived: PartitionState, local: LocalLog) -> tuple[Probe, ...]:
    """The batches worth comparing: of the newest raw segment that lies in the local log, else of one that reaches in.

    A segment that a cleaner has emptied has no batch: the newest one that has some is compared.
    Of a compacted segment it is the raw one that it was made of; of the archive's last segment also its own last batch, which a
    log has that was restored from it. One that compaction left as it was proves no more than the raw one.
    """
    own = [
        Probe(last.base_offset, last.end_offset, True, crc, is_raw=False)
        for last in archived.segments[-1:]
        if last.is_rewritten
        and (crc := last.last_batch_crc) is not None
        and (last.compacted_from is None or crc != last.compacted_from.last_crc)
        and local.start_offset < last.end_offset <= local.end_offset
    ]
    return (*own, *_raw_probes(archived, local))


def _raw_probes(archived: PartitionState, local: LocalLog) -> tuple[Probe, ...]:
    known = [found for segment in archived.segments if (found := segment.raw_batches) is not None]
    raw = [found for found in known if (found.first_crc, found.last_crc) != (None, None)]
    inside = [s for s in raw if local.start_offset <= s.base_offset and s.end_offset <= local.end_offset]
    if inside:
        newest = inside[-1]
        return (*_probe(newest, last=True), *_probe(newest, last=False))
    ends_inside = [s for s in raw if local.start_offset < s.end_offset <= local.end_offset]
    begins_inside = [s for s in raw if local.start_offset <= s.base_offset < local.end_offset]
    if ends_inside:
        return _probe(ends_inside[-1], last=True)
    return _probe(begins_inside[-1], last=False) if begins_inside else ()


def _probe(raw: RawBatches, *, last: bool) -> tuple[Probe, ...]:
    crc = raw.last_crc if last else raw.first_crc
    return () if crc is None else (Probe(raw.base_offset, raw.end_offset, last, crc),)


def judge_continuity(
    archived: PartitionState, local: LocalLog, found: Mapping[Probe, LocalBatch | None]
) -> ContinuityCheck:
    """Whether the local log continues the archived one.

    Args:
        found: the local batch of each probe, None where there is no such batch. In the order of `probes`, newest first.
    """
    if archived.end_offset is None:
        return ContinuityCheck(Verdict.PROVEN, "nothing is archived yet")
    if contradiction := _contradiction(archived, local):
        return ContinuityCheck(Verdict.CONTRADICTED, contradiction)
    batches = [(probe, batch) for probe, batch in found.items() if batch is not None]
    # Below a batch that both logs have, they are the same log. Nothing is compared below the archive's last one: the compaction
    # whose result was restored has rewritten it.
    if any(batch.crc == probe.crc for probe, batch in batches if not probe.is_raw):
        return ContinuityCheck(Verdict.PROVEN, "the archive's last batch, as compaction left it, is in the local log")
    raw = [(probe, batch) for probe, batch in batches if probe.is_raw]
    # A cleaner may have rewritten the others below.
    for probe, batch in raw[:1] if local.may_be_cleaned or local.is_compacted else raw:
        if batch.crc != probe.crc and not _may_be_rewritten(archived, local, batch):
            which = "last" if probe.last else "first"
            is_there = (
                batch.last_offset == probe.end_offset - 1 if probe.last else batch.base_offset == probe.base_offset
            )
            return ContinuityCheck(
                Verdict.CONTRADICTED,
                f"the {which} batch of [{probe.base_offset}, {probe.end_offset}) has CRC {batch.crc:08x} in the local "
                f"log and {probe.crc:08x} in the archive",
                is_lasting=is_there,
            )
    for probe, batch in raw:
        if batch.crc == probe.crc:
            return ContinuityCheck(
                Verdict.PROVEN, f"a batch of [{probe.base_offset}, {probe.end_offset}) is the archived one"
            )
    # Of a loss at its end the archive claims nothing, whatever the log had there.
    if local.has_differed and archived.loss_at_end is None and local.start_offset >= archived.end_offset:
        return ContinuityCheck(
            Verdict.CONTRADICTED, "they differed at an earlier check, and no archived offset is left in the local log"
        )
    if local.known_directory:
        return ContinuityCheck(
            Verdict.PROVEN, "this directory was archived into this lineage before, and nothing contradicts that"
        )
    return ContinuityCheck(
        Verdict.PLAUSIBLE, "offsets and leader epochs fit, but no archived batch is left in the local log"
    )


def _may_be_rewritten(archived: PartitionState, local: LocalLog, batch: LocalBatch) -> bool:
    """Whether a cleaner explains a batch with another checksum: only where both logs are known to be the same up to this batch.

    The batch itself says its leader epoch: the checkpoint begins at the log start, and files begin below it. Old formats have
    none: there only the cleaner of this very log explains it. Source: LeaderEpochFileCache.truncateFromStart.
    """
    if batch.leader_epoch < 0:
        return local.may_be_cleaned
    theirs = [entry for segment in archived.segments for entry in segment.leader_epochs]
    is_same = _is_same_log(theirs, batch.last_offset, batch.leader_epoch)
    return is_same and (local.may_be_cleaned or local.is_compacted)


def _contradiction(archived: PartitionState, local: LocalLog) -> str:
    last = archived.last_segment
    if last is None or not local.leader_epochs:
        return ""
    latest = local.leader_epochs[-1].epoch
    if latest < last.highest_batch_leader_epoch:
        return (
            f"the local log's latest leader epoch is {latest}, the archive holds batches of leader epoch "
            f"{last.highest_batch_leader_epoch}"
        )
    for segment in reversed(archived.segments):
        if segment.end_offset <= local.start_offset:
            break
        for offset in (segment.end_offset - 1, segment.base_offset):
            theirs = epoch_at(segment.leader_epochs, offset)
            ours = epoch_at(local.leader_epochs, offset)
            if theirs is None or ours is None:
                continue
            if (local.may_be_cleaned or local.is_compacted) and _is_same_log(local.leader_epochs, offset, theirs):
                return ""  # The same log up to here: below, a cleaner may have taken what an epoch began with.
            if theirs != ours:
                return f"offset {offset} has leader epoch {ours} in the local log and {theirs} in the archive"
    return ""


def _is_same_log(epochs: Sequence[LeaderEpoch], offset: int, epoch: int) -> bool:
    """Whether a log with these epochs is, up to an offset, the log in which this offset has this epoch, whatever a cleaner left.

    That is so where it has what this epoch's leader wrote, and no later epoch begins at or below the offset (KIP-101). The epoch
    itself may begin above: a replica that is fetched after cleaning learns it from the first batch that is left.
    Source: UnifiedLog.append, Partition.makeLeader.
    """
    is_known = any(entry.epoch == epoch for entry in epochs)
    return is_known and all(entry.epoch <= epoch or entry.start_offset > offset for entry in epochs)


def is_archived_log(archived: PartitionState, epochs: Sequence[LeaderEpoch]) -> bool:
    """Whether leader epochs prove that a log with these has, as far as both reach, what is archived."""
    last = archived.last_segment
    epoch = None if last is None else epoch_at(last.leader_epochs, last.end_offset - 1)
    return last is not None and epoch is not None and _is_same_log(epochs, last.end_offset - 1, epoch)


def epoch_at(epochs: tuple[LeaderEpoch, ...], offset: int) -> int | None:
    """The epoch of the last entry that begins at or below an offset. Source: LeaderEpochFileCache.epochForOffset."""
    found = [entry.epoch for entry in epochs if entry.start_offset <= offset]
    return found[-1] if found else None


REMEDY = (
    "The archived offsets stay readable. To archive the local log from its own beginning, set store.url to another "
    "prefix. All topics of this sidecar then begin again there. To move only this topic, exclude it here, and run a second "
    "sidecar with topics.include and its own store.url and run.state_dir"
)


def relevant(lineages: Sequence[Lineage], topic_id: str | None) -> tuple[Lineage, ...]:
    """The lineages whose states `choose_lineage` needs: another topic id's lineage never matters to a known id."""
    if topic_id is None:
        return tuple(lineages)
    return tuple(lineage for lineage in lineages if lineage.incarnation in {NO_TOPIC_ID, topic_id})


def choose_lineage(
    cluster_id: str,
    topic_partition: TopicPartition,
    topic_id: str | None,
    states: Sequence[PartitionState],
    check: Callable[[PartitionState], ContinuityCheck],
) -> PartitionState:
    """The state to append to: by topic id if it is known, else by the continuity check.

    One without a topic id is chosen for a known one only where continuity proves it. The next commit adopts the id.

    Args:
        topic_id: of the local log, None where `partition.metadata` does not exist.
        states: of the lineages that are `relevant`; those without commits count as not there.
        check: judges whether the local log continues an archived one.

    Raises:
        LineageUnknown: it cannot be shown which lineage the local log continues, or the log of the same topic id is shown
            not to continue it: it was truncated below what is archived.
    """
    begun = [state for state in states if state.next_number > 0]
    fresh = empty_state(Lineage(cluster_id, topic_partition, topic_id or NO_TOPIC_ID))
    if topic_id is None:
        if not begun:
            return fresh
        checks = [(state, check(state)) for state in begun]
        proven = [(state, found) for state, found in checks if found.verdict is Verdict.PROVEN]
        if len(proven) == 1:
            return proven[0][0]
        raise _unknown(topic_partition, *(proven or checks)[-1])
    same = require_one(begun, topic_id)
    if same is not None:
        require_continuation(same, topic_id, check(same))
        return same
    nameless = [state for state in begun if state.topic_id is None]
    if not nameless:
        return fresh
    found = check(nameless[0])
    if found.verdict is Verdict.PROVEN:
        return nameless[0]
    if found.verdict is Verdict.CONTRADICTED:
        return fresh
    raise _unknown(topic_partition, nameless[0], found)


def require_one(states: Sequence[PartitionState], topic_id: str) -> PartitionState | None:
    """The lineage of a topic id among those of a partition, None if there is none. Raises LineageUnknown if there are two."""
    same = [state for state in states if state.next_number > 0 and state.topic_id == topic_id]
    if len(same) > 1:
        names = " and ".join(state.lineage.incarnation for state in same)
        raise LineageUnknown(
            f"{same[0].lineage.topic_partition}: lineages {names} both belong to topic id {topic_id}: move the "
            "objects of one of them to another prefix"
        )
    return same[0] if same else None


def require_continuation(state: PartitionState, topic_id: str | None, found: ContinuityCheck) -> None:
    """Raise LineageUnknown unless a local log with this topic id may be appended to an archived one, judged as `found`.

    Where the ids agree nothing more need be proven; but an unclean leader election truncates a log under its own id.
    """
    topic_partition = state.lineage.topic_partition
    if topic_id is None or state.topic_id != topic_id:
        if found.verdict is not Verdict.PROVEN:
            raise _unknown(topic_partition, state, found)
    elif found.verdict is Verdict.CONTRADICTED:
        raise LineageUnknown(
            f"{topic_partition}: the local log and the one archived below {state.lineage.root} have the same topic id, but "
            f"differ: {found.reason}. The local log lost offsets after they had been archived, or recorded as lost: the broker "
            f"started with an empty disk or an older copy of it, or there was an unclean leader election. If you have the right "
            f"disk, stop the broker and put it back: then archiving continues. {REMEDY}",
            archived_end_offset=state.end_offset,
        )


def _unknown(topic_partition: TopicPartition, state: PartitionState, found: ContinuityCheck) -> LineageUnknown:
    return LineageUnknown(
        f"{topic_partition}: cannot prove that the local log continues the archive below {state.lineage.root}, "
        f"which ends at offset {state.end_offset}: {found.reason}. {REMEDY}",
        archived_end_offset=state.end_offset,
    )
