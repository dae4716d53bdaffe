"""The report of `compact` for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecar.cli.output import print_table, remark, size

if TYPE_CHECKING:
    from sidecar.compaction.rules import CompactionRules
    from sidecar.pipeline.compaction.directory import Compaction


def show_compaction(compaction: Compaction, rules: CompactionRules, *, colors: bool) -> None:
    """One row per output segment, then what was left alone and what was lost."""
    rows: list[tuple[object, ...]] = [
        (
            output.base_offset,
            output.end_offset,
            len(output.sources),
            size(sum(source.size_bytes for source in output.sources)),
            size(output.size_bytes),
            output.counts.kept_records,
            "unchanged" if output.unchanged else "compacted",
        )
        for output in compaction.outputs
    ]
    rows += [
        (file.base_offset, file.end_offset, 1, size(file.size_bytes), size(file.size_bytes), None, "left alone")
        for file in compaction.left_alone
    ]
    name = compaction.survey.files.topic_partition
    done = "would become" if compaction.out is None else "became"
    columns = ["from#", "to#", "segments#", "size before#", "size#", "records#", "what"]
    print_table(f"{name} by {rules.effective_strategy}", columns, rows, colors=colors)
    remark(
        f"{compaction.records_before} records in {size(compaction.bytes_before)} {done} "
        f"{compaction.records_after} in {size(compaction.bytes_after)}"
    )
    if compaction.unkeyed:
        remark(f"{compaction.unkeyed} records have no key: compaction drops them")
    if compaction.malformed_versions:
        remark(f"{compaction.malformed_versions} records have a malformed version in {rules.header_name}")
    for text in compaction.survey.remarks:
        remark(f"note: {text}")
