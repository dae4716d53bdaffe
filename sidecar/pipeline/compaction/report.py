"""A compaction as plain values, for programs."""

from __future__ import annotations

from typing import Any

from sidecar.compaction.rules import CompactionRules
from sidecar.pipeline.compaction.directory import Compaction


def as_json(compaction: Compaction, rules: CompactionRules) -> dict[str, Any]:
    """Names are stable. `out` is null if nothing was written."""
    files = compaction.survey.files
    return {
        "topic": files.topic_partition.topic,
        "partition": files.topic_partition.partition,
        "directory": str(files.directory),
        "out": None if compaction.out is None else str(compaction.out),
        "strategy": str(rules.effective_strategy),
        "header": rules.in_use.header or None,
        "now_ms": rules.now_ms,
        "last_stable_offset": compaction.survey.last_stable_offset,
        "log_end_offset": compaction.survey.log_end_offset,
        **compaction.figures_as_json(),
        "segments": [
            {
                **output.to_json(),
                "records": output.counts.kept_records,
                "batches_kept": output.counts.verbatim,
                "batches_rebuilt": output.counts.rebuilt,
                "batches_emptied": output.counts.emptied,
                "batches_dropped": output.counts.dropped,
            }
            for output in compaction.outputs
        ],
        "left_alone": [file.base_offset for file in compaction.left_alone],
        "remarks": list(compaction.survey.remarks),
    }
