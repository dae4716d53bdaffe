"""What the outputs of one partition's compaction add up to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic

from sidecar.compaction.rewrite_counts import RewriteCounts
from sidecar.rewriting.job import CompactedOutput
from sidecar.rewriting.sources import SourceT


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionFigures(Generic[SourceT]):
    """Bytes are those of `.log` files or objects; records count markers.

    `unkeyed`: records without key, which compaction drops. `malformed_versions`: records whose version header is unusable.
    `deleted`: records below the log start (DeleteRecords), which compaction drops without comparing them.
    """

    outputs: tuple[CompactedOutput[SourceT], ...] = ()
    records_before: int = 0
    unkeyed: int = 0
    malformed_versions: int = 0
    deleted: int = 0

    @property
    def bytes_before(self) -> int:
        """Of the segments that were, or would be, compacted."""
        return sum(source.size_bytes for output in self.outputs for source in output.sources)

    @property
    def bytes_after(self) -> int:
        """Of what came, or would come, of them."""
        return sum(output.size_bytes for output in self.outputs)

    @property
    def records_after(self) -> int:
        """The same in records."""
        return self.counts.kept_records

    @property
    def counts(self) -> RewriteCounts:
        """What became of the batches of the segments that were rewritten."""
        return sum((output.counts for output in self.outputs), RewriteCounts())

    def figures_as_json(self) -> dict[str, Any]:
        """Names are stable."""
        return {
            "bytes_before": self.bytes_before,
            "bytes_after": self.bytes_after,
            "records_before": self.records_before,
            "records_after": self.records_after,
            "unkeyed_records": self.unkeyed,
            "malformed_versions": self.malformed_versions,
            "deleted_records": self.deleted,
        }
