"""The commit of a compacted partition: what is removed, added and marked clean, as long as its sources are still live."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from sidecar.archive.actions import Action, Add, Clean, CompactedBy, Remove
from sidecar.archive.state import PartitionState, newest_strategy
from sidecar.commits.commit_log import CommitConflict, CommitLog
from sidecar.commits.commit_window import CommitWindow
from sidecar.compactor.archive.plan import CompactionRequest, PartitionInWork
from sidecar.errors import PartitionError
from sidecar.model import ArchivedSegment

_TRIES: Final = 20


def commit(
    log: CommitLog,
    found: PartitionInWork,
    window: CommitWindow,
    before_put: Callable[[], None],
) -> int | None:
    """Commit a partition whose outputs are uploaded, and say under which number; None where the archive says so already.

    `window`: of the uploads. `before_put`: called before each commit is put.

    An uploader that appends meanwhile does no harm. Raises CommitConflict if the sources are not live any more or records of
    them were deleted meanwhile, Fenced, and what `CommitWindow.require_open` and `CommitLog.append` raise.
    """
    request, state, writer = found.request, found.planned.state, found.planned.writer
    sources = [source.segment for output in found.outputs for source in output.sources]
    replaced = [source.segment for output in found.outputs if not output.unchanged for source in output.sources]
    added = [found.finished[number] for number in sorted(found.finished)]
    actions = _actions(request, sources, replaced, added)
    decided_from_offset = state.deleted_before_offset
    for _ in range(_TRIES):
        state = log.refresh(state)
        _require_live(state, sources)
        _require_none_deleted(state, sources, decided_from_offset)
        is_clean = state.clean is not None and state.clean.end_offset >= sources[-1].end_offset
        if not added and is_clean and newest_strategy(state) == request.rules.in_use:
            return None
        window.require_open(state.lineage.root, added)
        before_put()
        try:
            return log.append(actions, writer, state).next_number - 1
        except CommitConflict as error:
            state = error.state
    raise PartitionError(f"{state.lineage.root}: {_TRIES} commits of other writers came first; compact again later")


def _actions(
    request: CompactionRequest,
    sources: Sequence[ArchivedSegment],
    replaced: Sequence[ArchivedSegment],
    added: Sequence[ArchivedSegment],
) -> list[Action]:
    strategy = request.rules.effective_strategy
    reason = CompactedBy(strategy)
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
            f"{state.lineage.root}: other segments are live below offset {sources[-1].end_offset} than those that were compacted: "
            f"another compaction came first; nothing was committed",
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
