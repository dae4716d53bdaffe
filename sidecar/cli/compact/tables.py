"""The report of `compact` for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecar.cli.output import print_table, remark, size
from sidecar.plurals import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sidecar.compaction.rules import CompactionRules
    from sidecar.rewriting.directory import Compaction
    from sidecar.rewriting.what_if import KeptRecord, Outlook


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
        f"{plural(compaction.records_before, 'record')} in {size(compaction.bytes_before)} {done} "
        f"{compaction.records_after} in {size(compaction.bytes_after)}"
    )
    if compaction.unkeyed:
        remark(f"{plural(compaction.unkeyed, 'record has', 'records have')} no key: compaction removes such records")
    if compaction.malformed_versions:
        remark(
            f"{plural(compaction.malformed_versions, 'record has', 'records have')} a malformed version in {rules.header_name}"
        )
    if compaction.deleted:
        remark(
            f"{plural(compaction.deleted, 'record is', 'records are')} below the log start offset: compaction removes such records"
        )
    for text in compaction.survey.remarks:
        remark(f"note: {text}")


def show_outlooks(name: str, outlooks: Sequence[Outlook], *, colors: bool) -> None:
    """One row per strategy, then samples of the keys for which it keeps another record than the offset does."""
    if not outlooks:
        remark(f"{name}: no segment can be compacted")
        return
    rows = [
        (
            outlook.strategy,
            size(outlook.bytes_before),
            size(outlook.bytes_before - outlook.bytes_after),
            outlook.records_before,
            outlook.records_before - outlook.records_after,
            len(outlook.others),
        )
        for outlook in outlooks
    ]
    columns = ["strategy", "size#", "saved#", "records#", "saved#", "keys with another record#"]
    print_table(f"{name}: what compaction would save", columns, rows, colors=colors)
    for outlook in outlooks:
        shown = [
            (other.key.decode("utf-8", "replace"), *_words(other.by_offset), *_words(other.by_strategy))
            for other in outlook.samples
        ]
        if shown:
            columns = [
                "key",
                "kept by offset#",
                "time#",
                "version#",
                f"kept by {outlook.strategy}#",
                "time#",
                "version#",
            ]
            print_table(
                f"{name}: keys whose retained record differs by {outlook.strategy} (first ones)",
                columns,
                shown,
                colors=colors,
            )
    unkeyed = outlooks[0].unkeyed
    if unkeyed:
        remark(f"{plural(unkeyed, 'record has', 'records have')} no key: compaction removes such records")
    deleted = outlooks[0].deleted
    if deleted:
        remark(
            f"{plural(deleted, 'record is', 'records are')} below the log start offset: compaction removes such records"
        )
    malformed = max(outlook.malformed_versions for outlook in outlooks)
    if malformed:
        remark(
            f"{plural(malformed, 'record has', 'records have')} a malformed version: such records rank below all that have one"
        )


def _words(record: KeptRecord) -> tuple[object, ...]:
    return record.offset, record.timestamp_ms, record.version
