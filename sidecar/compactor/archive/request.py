"""What is asked of a compaction of archived partitions, and what came of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from sidecar.archive.commit import Writer
from sidecar.archive.state import CommitId
from sidecar.commits.stored_commits import proves_not_committed
from sidecar.compaction.rules import CompactionRules
from sidecar.compaction_strategy import StrategyInUse
from sidecar.compactor.archive.archived_log import ArchivedLog
from sidecar.errors import SidecarError
from sidecar.model import ObjectKey
from sidecar.rewriting.job import CompactionFigures


@dataclass(frozen=True, slots=True)
class CompactionRequest:
    """Compact the whole archive of the lineage `root`, clean and dirty, up to `end_offset` (exclusive; None: its end).

    `writer`: None for whoever committed last: a commit of a later leader fences it all the same. `keep_raw_ms`: how long
    raw segments that are replaced stay beyond the grace period. `may_change_strategy`: whether the newest compaction may have
    been by another strategy. `newest_commit`: see `LedPartition`; by hand none is known.
    """

    root: ObjectKey
    rules: CompactionRules
    writer: Writer | None = None
    end_offset: int | None = None
    keep_raw_ms: int = 0
    may_change_strategy: bool = True
    newest_commit: Callable[[], CommitId | None] = field(default=lambda: None, compare=False)


@dataclass(frozen=True, slots=True)
class PartitionCompaction(CompactionFigures[ArchivedLog]):
    """How it ended: with an error, or with outputs, of which those that are `unchanged` stay.

    After an error nothing was committed, unless `is_unknown`.

    `left_alone`: live segments above what may be compacted. `commit_number`: None where there was nothing to commit, and in
    a dry run. `strategy_before`: of the newest compaction before this one, if it was another one.
    `new_malformed_versions`: those of `malformed_versions` that no compaction has met before.
    """

    request: CompactionRequest
    error: SidecarError | None = None
    left_alone: int = 0
    commit_number: int | None = None
    strategy_before: StrategyInUse | None = None
    new_malformed_versions: int = 0

    @property
    def is_unknown(self) -> bool:
        """Whether the commit was sent and its outcome is unknown. The objects that it names stay in the store."""
        return self.error is not None and not proves_not_committed(self.error)
