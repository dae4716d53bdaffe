"""Where a partition's archive goes on: the lineage that its topic id names, or whose batches the local log still has."""

from dataclasses import dataclass, replace
from typing import Protocol

from sidecar.archive.continuity import (
    ContinuityCheck,
    LocalBatch,
    LocalLog,
    Probe,
    Verdict,
    choose_lineage,
    judge_continuity,
    probes,
    relevant,
    require_continuation,
    require_one,
)
from sidecar.archive.keys import Lineage
from sidecar.archive.state import PartitionState
from sidecar.clock import HasClock
from sidecar.commits.commit_log import CommitLog
from sidecar.commits.lineages import find_lineages
from sidecar.errors import CorruptFile, PartitionError
from sidecar.host.archive_cache import HasMemory, Remembered
from sidecar.host.journal import HasJournal
from sidecar.host.log_dir_fingerprint import bears
from sidecar.logformat.leader_epochs import LeaderEpochs
from sidecar.model import ObjectKey, PartitionFiles
from sidecar.partition.run_limits import HasLimits
from sidecar.ports import BrokerFacts, HasEmit, HasFacts, HasStore
from sidecar.randomness import HasRandomness
from sidecar.segment.log_disk import HasDisk, LogDisk


class ArchivePorts(
    HasStore, HasDisk, HasJournal, HasMemory, HasClock, HasRandomness, HasFacts, HasEmit, HasLimits, Protocol
):
    """What this, and the view of an archive, take of the world."""


@dataclass(frozen=True, slots=True)
class OpenedLineage:
    """A commit log to append to, and its state.

    `remembered`: what the state was resumed from, None where all of it was read from the store.
    """

    commits: CommitLog
    state: PartitionState
    remembered: Remembered | None = None


def open_lineage(context: ArchivePorts, files: PartitionFiles) -> OpenedLineage:
    """The lineage that these files continue, as the store has it. Raises LineageUnknown, CorruptFile, StoreError.

    The one that the topic id names is taken without a search for others: see `require_alone`.
    """
    cluster_id = context.facts.cluster_id()
    if files.topic_id is not None:
        root = Lineage(cluster_id, files.topic_partition, files.topic_id).root
        named = _log_of(context, root)
        state = named.read()
        if state.next_number:
            require_continuation(state, files.topic_id, judge_local_log(context, files, state))
            return OpenedLineage(named, state)
    lineages = relevant(find_lineages(context.store, cluster_id, files.topic_partition), files.topic_id)
    logs = {lineage: _log_of(context, lineage.root) for lineage in lineages}
    state = choose_lineage(
        cluster_id,
        files.topic_partition,
        files.topic_id,
        [log.read() for log in logs.values()],
        lambda archived: judge_local_log(context, files, archived),
    )
    return OpenedLineage(logs.get(state.lineage) or _log_of(context, state.lineage.root), state)


def _log_of(context: ArchivePorts, root: ObjectKey) -> CommitLog:
    return CommitLog(context.store, root, context.clock, randomness=context.randomness)


def require_alone(context: ArchivePorts, files: PartitionFiles, archived: PartitionState) -> None:
    """Raise LineageUnknown if another lineage belongs to the same topic id as this one, to which something is to be appended.

    At a start this would cost a request for each of a thousand partitions of which most get nothing for hours.
    """
    if files.topic_id is None:
        return
    cluster_id = context.facts.cluster_id()
    lineages = relevant(find_lineages(context.store, cluster_id, files.topic_partition), files.topic_id)
    others = [_log_of(context, other.root).read() for other in lineages if other != archived.lineage]
    require_one([archived, *others], files.topic_id)


def resume_lineage(context: ArchivePorts, files: PartitionFiles) -> OpenedLineage | None:
    """The same in one request, or two, from what is remembered; None where that does not tell.

    Only for a topic id that both sides know: it names the lineage. Not where attempts are left: to know which of them are
    committed takes the whole state. Raises LineageUnknown, StoreError.
    """
    remembered = context.memory.recall(files.topic_partition)
    if remembered is None or files.topic_id is None:
        return None
    before = remembered.state
    is_named = before.topic_id == files.topic_id and before.lineage.cluster_id == context.facts.cluster_id()
    if not is_named or context.journal.attempts(before.lineage.root):
        return None
    commits = _log_of(context, before.lineage.root)
    try:
        state = commits.resume(before, remembered.newest_checkpoint, remembered.mark)
    except CorruptFile:
        return None  # The whole archive is read instead, and `require_kept` decides.
    if state.segments[: len(before.segments)] != before.segments or state.removed or state.clean:
        return None  # Compacted since.
    require_continuation(state, files.topic_id, judge_local_log(context, files, state))
    return OpenedLineage(commits, state, remembered=remembered)


def require_kept(
    context: ArchivePorts, files: PartitionFiles, opened: OpenedLineage, before: PartitionState
) -> PartitionState:
    """The opened state, or a newer one, after a check that the store still has the last commit of `before`.

    Of another topic id nothing is checked: that topic was created again. Raises CorruptFile if the commit is missing or was
    replaced, StoreError.
    """
    root, last = before.lineage.root, before.next_number - 1
    is_same = root == opened.state.lineage.root
    if is_same and opened.state.last_sha256 == before.last_sha256:
        return opened.state
    if not (is_same or (files.topic_id is not None and before.topic_id == files.topic_id)):
        return opened.state
    commits = opened.commits if is_same else _log_of(context, root)
    try:
        commits.require_commit(last, before.last_sha256)
    except CorruptFile as error:
        memory = context.memory.path
        forget = "restart the sidecar" if memory is None else f"stop the sidecar, delete {memory}, start it again"
        raise CorruptFile(
            error.what,
            file=error.file,
            advice=f"{error.advice}. Only if the archive was removed on purpose: {forget}. Otherwise this forks the "
            "history, and the content of the missing commits is lost",
        ) from error
    return commits.refresh(opened.state) if is_same and opened.state.next_number <= last else opened.state


def require_continuity(context: ArchivePorts, files: PartitionFiles, archived: PartitionState) -> None:
    """Raise LineageUnknown unless the local log, as it is now, may be appended to the archived one.

    A check of few batches: a topic can be re-created, or truncated, between any two scans of its directory.
    """
    require_continuation(archived, files.topic_id, judge_local_log(context, files, archived))


def needs_reach(files: PartitionFiles, archived: PartitionState) -> bool:
    """Whether `require_reach` or `truncated_into_loss` would read anything."""
    base_offset, end_offset = files.active_base_offset, archived.end_offset
    if end_offset is None:
        return False
    return (base_offset is not None and base_offset < end_offset) or archived.loss_at_end is not None


def require_reach(context: ArchivePorts, files: PartitionFiles, archived: PartitionState) -> None:
    """Raise LineageUnknown if the local log ends below the archived one: of one log, the archive has only a part.

    Reads the active segment, but only where it begins below the archive's end (boundaries differ between replicas).
    """
    active, base_offset, end_offset = files.active_log, files.active_base_offset, archived.end_offset
    if active is None or base_offset is None or end_offset is None or base_offset >= end_offset:
        return
    _, log_end = context.disk.newest_record(active, base_offset)
    if log_end < end_offset:
        found = ContinuityCheck(
            Verdict.CONTRADICTED, f"the local log ends at offset {log_end}, below the archive's end {end_offset}"
        )
        _note_that_it_differs(context, files, archived)
        require_continuation(archived, files.topic_id, found)


def truncated_into_loss(
    disk: LogDisk, files: PartitionFiles, archived: PartitionState, log_start_offset: int
) -> ContinuityCheck | None:
    """A contradiction unless the leader epochs show that the local log was not truncated into the loss that the archive ends with.

    The leader that recorded the loss had a log that began at its end: no batch below has a later leader epoch, unless another
    leader truncated the log, and assigned the offsets again. No archived batch shows that; once something is archived above,
    nothing does. That this log still has the offsets contradicts nothing: a replica raises its log start only with its next fetch.

    Source: ReplicaFetcherThread.processPartitionData, LeaderEpochFileCache.epochForOffset.
    """
    loss, first_offset = archived.loss_at_end, files.first_offset
    if loss is None or first_offset is None or max(first_offset, log_start_offset) >= loss.end_offset:
        return None
    last_offset = loss.end_offset - 1
    epoch = (disk.leader_epochs(files) or LeaderEpochs()).epoch_for_offset(last_offset)
    if epoch is not None and epoch <= archived.leader_epoch:
        return None
    return ContinuityCheck(
        Verdict.CONTRADICTED,
        f"the archive ends with the loss of [{loss.base_offset}, {loss.end_offset}), recorded under leader epoch "
        f"{archived.leader_epoch} or lower, and the local log has offset {last_offset} under "
        f"{'an unknown leader epoch' if epoch is None else f'leader epoch {epoch}'}",
    )


def judge_local_log(context: ArchivePorts, files: PartitionFiles, archived: PartitionState) -> ContinuityCheck:
    """Whether these local files continue the archived log. Looks up the batches that both should have."""
    first = files.segments[0].base_offset if files.segments else (files.active_base_offset or 0)
    end = files.segments[-1].end_offset if files.segments else first
    epochs, now = context.disk.leader_epochs(files), context.disk.fingerprint(files)
    source, other = (find(archived.lineage.root) for find in (context.journal.source_of, context.journal.differing))
    is_source = source is not None and bears(files, now, source)
    was_cleaned = context.disk.first_dirty_offset(files.log_dir, files.topic_partition) is not None
    local = LocalLog(
        first,
        end,
        epochs.entries if epochs else (),
        may_be_cleaned=files.unstable or was_cleaned,
        # Each replica has a cleaner of its own: the archived segment may be one that another broker has cleaned, and this one not.
        is_compacted=context.facts.policy(files.topic_partition.topic).is_compacted,
        known_directory=is_source,
        # A directory that nothing came from may have got its log from there: by a move, or from another replica.
        has_differed=other is not None and (bears(files, now, other) or not is_source),
    )
    found = judge_continuity(
        archived, local, {probe: _find(context.disk, files, probe) for probe in probes(archived, local)}
    )
    if found.verdict is Verdict.CONTRADICTED:
        if found.is_lasting:
            _note_that_it_differs(context, files, archived)
    elif other is not None:
        context.journal.agrees(archived.lineage.root)
    return found


def _note_that_it_differs(context: ArchivePorts, files: PartitionFiles, archived: PartitionState) -> None:
    """What shows it may be deleted before the next check. Once: a stopped partition is checked again and again."""
    root, now = archived.lineage.root, context.disk.fingerprint(files)
    if context.journal.differing(root) != now:
        context.journal.differs(root, now)


def named_by_cluster(facts: BrokerFacts, files: PartitionFiles) -> PartitionFiles:
    """The same files under the cluster's topic id, where their directory has none.

    It was made before Kafka 2.8, or lost its `partition.metadata`: the broker serves it as that topic's, and will write the id
    there itself. Source: Partition.createLogIfNotExists, UnifiedLog.assignTopicId.
    """
    if files.topic_id is not None:
        return files
    try:
        reported = facts.partition(files).topic_id
    except PartitionError:
        return files  # Planning reports it.
    return files if reported is None else replace(files, topic_id=reported)


def note_source(context: ArchivePorts, root: str, files: PartitionFiles, *, is_first: bool) -> None:
    """Note after a commit where the lineage came from: once, or each time where only the active segment marks the directory."""
    mark = context.disk.fingerprint(files)
    if is_first or (mark.birth_ns is None and files.topic_id is None):
        context.journal.archived_from(root, mark)


def _find(disk: LogDisk, files: PartitionFiles, probe: Probe) -> LocalBatch | None:
    """The batch that a probe asks for, None where no batch answers."""
    segments = [
        segment
        for segment in files.segments
        if segment.end_offset > probe.base_offset and segment.base_offset < probe.end_offset
    ]
    for segment in reversed(segments) if probe.last else segments:
        found = disk.batch_in(segment, probe.base_offset, probe.end_offset, last=probe.last)
        if found is not None:
            return found
    return None
