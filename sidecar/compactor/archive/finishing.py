"""What ends a compaction: the two objects of each segment, as a task, and the commit of the partition.

Parts are joined, indexes built, and both are uploaded under a fresh id. The commit says what is removed, added and marked clean,
as long as its sources are still live.
"""

import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sidecar.archive.actions import Action, Add, Clean, Remove, compacted_by
from sidecar.archive.bundle import INDEXES_BYTES_MAX, assemble_indexes, log_part
from sidecar.archive.keys import below, fresh_id, indexes_key, log_key
from sidecar.archive.state import PartitionState, newest_strategy
from sidecar.commits.checked_upload import send_bytes, send_checked
from sidecar.commits.commit_log import CommitConflict, CommitLog
from sidecar.commits.commit_window import CommitWindow
from sidecar.compaction.rules import CompactionRules
from sidecar.compaction_strategy import StrategyInUse
from sidecar.compactor.archive.archived_log import LAST_MODIFIED, ArchivedLog
from sidecar.compactor.archive.plan import CompactionRequest, PartitionInWork
from sidecar.errors import PartitionError, SidecarError
from sidecar.host import process_store
from sidecar.logformat.files import PositionalFile, cannot_be_written
from sidecar.logformat.leader_epochs import epochs_of
from sidecar.model import ArchivedSegment, PartName
from sidecar.randomness import Randomness
from sidecar.rewriting.job import CompactedOutput
from sidecar.rewriting.segment_files import checked_log, joined
from sidecar.rewriting.work_files import Parts, WorkFile, nameless_file
from sidecar.segment.log_check import fetch_parts
from sidecar.storage.source import FileSource


@dataclass(frozen=True, slots=True)
class FinishTask:
    """Make a segment of an output. `staging`: where its log is put together; None: the machine's temporary directory."""

    output: CompactedOutput[ArchivedLog]
    rules: CompactionRules
    parts: Parts
    staging: Path | None
    randomness: Randomness


def finish(task: FinishTask) -> ArchivedSegment | SidecarError:
    """What an engine runs: the segment, whose objects are in the store but in no commit; or the error for which there is none.

    Each attempt has an id of its own, so that no two get in each other's way.
    """
    try:
        return _finish(task)
    except SidecarError as error:
        return error


def _finish(task: FinishTask) -> ArchivedSegment:
    place = task.staging or Path(tempfile.gettempdir())
    with nameless_file(place) as log:
        for piece in joined(task.output, task.parts):
            log.write(piece)
        with cannot_be_written(place):  # a disk that fails may refuse to read, too
            segment, indexes = _segment(task, log)
        last = task.output.sources[-1]
        store = process_store.store_of(last.store)
        log_at, indexes_at = below(last.root, segment.log_key), below(last.root, segment.indexes_key)
        try:
            source = FileSource(log.file.fileno(), log.size_bytes, log_at)
            send_checked(store, log_at, source, segment.parts[0].crc32c, reads_back=True)
            send_bytes(store, indexes_at, indexes)
        except SidecarError:
            with suppress(SidecarError):
                store.delete([log_at, indexes_at])
            raise
    return segment


def _segment(task: FinishTask, log: WorkFile) -> tuple[ArchivedSegment, bytes]:
    """What is to be committed of the joined log, which has been checked; and its `.indexes`."""
    output, sources = task.output, [source.segment for source in task.output.sources]
    root = output.sources[-1].root
    built = checked_log(
        PositionalFile(log.file.fileno()), log.size_bytes, output, f"{root}: compacted segment at {output.base_offset}"
    )
    old = fetch_parts(process_store.store_of(output.sources[-1].store), root, sources[-1])
    indexes, parts = assemble_indexes(
        built.offset_index,
        built.time_index,
        # Of the log before compaction, both: what was compacted away still counts for them.
        old[PartName.PRODUCER_SNAPSHOT],
        old[PartName.LEADER_EPOCHS],
        built.transaction_index or None,
    )
    if len(indexes) > INDEXES_BYTES_MAX:
        raise PartitionError(
            f"{root}: indexes and snapshot of [{output.base_offset}, {output.end_offset}) would take "
            f"{len(indexes)} bytes, readers accept at most {INDEXES_BYTES_MAX}. Nothing was committed: compact with "
            "a smaller segment_bytes"
        )
    segment_id = fresh_id(task.randomness)
    segment = ArchivedSegment(
        segment_id=segment_id,
        base_offset=output.base_offset,
        end_offset=output.end_offset,
        log_key=log_key(output.base_offset, segment_id),
        indexes_key=indexes_key(output.base_offset, segment_id),
        parts=(log_part(log.size_bytes, output.crc32c), *parts),
        # An epoch that goes on over a border begins once.
        leader_epochs=epochs_of(
            (entry.epoch, entry.start_offset) for source in sources for entry in source.leader_epochs
        ).entries,
        highest_batch_leader_epoch=built.leader_epochs.latest_epoch,
        max_timestamp_ms=built.max_timestamp_ms,
        batch_count=built.batch_count,
        snapshot=sources[-1].snapshot,
        generation=max(source.generation for source in sources) + 1,
        strategy=str(task.rules.effective_strategy),
        strategy_parameters={
            **task.rules.parameters,
            LAST_MODIFIED: str(max(source.last_modified_ms for source in output.sources)),
        },
        first_batch_crc=built.first_batch_crc,
        last_batch_crc=built.last_batch_crc,
        # Another broker's log is known by the batches that the log had, not by those that were made of them.
        compacted_from=next((raw for source in reversed(sources) if (raw := source.raw_batches)), None),
    )
    return segment, indexes


_TRIES: Final = 20


def commit(
    log: CommitLog,
    found: PartitionInWork,
    window: CommitWindow,
    before_put: Callable[[], None],
) -> int | None:
    """Commit a partition whose outputs are uploaded, and say under which number.

    None where the partition needs no commit. Where its sources stay, the commit names none of the uploads.

    `window`: of the uploads. `before_put`: called before each commit is put.

    An uploader that appends meanwhile does no harm. Raises CommitConflict if the sources are not live any more, records of them
    were deleted or they were found clean by another strategy meanwhile, Fenced, and what `CommitWindow.require_open` and
    `CommitLog.append` raise.
    """
    request, state, writer = found.request, found.planned.state, found.planned.writer
    sources = [source.segment for source in found.sources]
    decided_from_offset, strategy_before = state.deleted_before_offset, newest_strategy(state)
    for _ in range(_TRIES):
        state = log.refresh(state)
        _require_live(state, sources)
        _require_none_deleted(state, sources, decided_from_offset)
        _require_same_strategy(state, strategy_before)
        if found.spares_undo(state):
            found.leave_sources()
        if not found.needs_commit(state):
            return None
        changed = [(number, output) for number, output in enumerate(found.outputs) if not output.unchanged]
        replaced = [source.segment for _, output in changed for source in output.sources]
        added = [found.finished[number] for number, _ in changed]
        window.require_open(state.lineage.root, added)
        before_put()
        try:
            return log.append(_actions(request, sources, replaced, added), writer, state).next_number - 1
        except CommitConflict as error:
            state = error.state
    raise PartitionError(
        f"{state.lineage.root}: other writers committed first {_TRIES} times. Nothing was committed: compact again "
        "later"
    )


def _actions(
    request: CompactionRequest,
    sources: Sequence[ArchivedSegment],
    replaced: Sequence[ArchivedSegment],
    added: Sequence[ArchivedSegment],
) -> list[Action]:
    strategy = request.rules.effective_strategy
    reason = compacted_by(strategy)
    removes = [
        Remove(
            old.segment_id,
            old.base_offset,
            old.end_offset,
            reason,
            0 if old.generation else request.keep_raw_ms,
        )
        for old in replaced
    ]
    clean = Clean(sources[0].base_offset, sources[-1].end_offset, str(strategy), request.rules.parameters)
    return [*removes, *map(Add, added), clean]


def _require_live(state: PartitionState, sources: Sequence[ArchivedSegment]) -> None:
    """The archive must begin with these very segments."""
    live = [segment.segment_id for segment in state.segments[: len(sources)]]
    if live != [source.segment_id for source in sources]:
        raise CommitConflict(
            f"{state.lineage.root}: the live segments below offset {sources[-1].end_offset} are no longer those "
            "that were compacted, because another compaction or an undo committed first. Nothing was committed: run the same "
            "command again",
            state,
        )


def _require_same_strategy(state: PartitionState, before: StrategyInUse | None) -> None:
    """The plan has checked, and reported, on which strategy this compaction follows. One that changes no segment may come first."""
    if state.clean is not None and (newest := newest_strategy(state)) != before:
        raise CommitConflict(
            f"{state.lineage.root}: another compaction committed first, by strategy {newest}. Nothing was committed: check "
            "that strategy, then run again",
            state,
        )


def _require_none_deleted(state: PartitionState, sources: Sequence[ArchivedSegment], decided_from_offset: int) -> None:
    """Records that are deleted by now must not have won over others."""
    deleted_before_offset = min(state.deleted_before_offset, sources[-1].end_offset)
    if deleted_before_offset > max(decided_from_offset, sources[0].base_offset):
        raise CommitConflict(
            f"{state.lineage.root}: records below offset {deleted_before_offset} were deleted on the broker (DeleteRecords) while "
            f"the partition was compacted; nothing was committed, and no record was lost: compact it again",
            state,
        )
