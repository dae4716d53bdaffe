"""What `restore` says it did, or would do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sidecar.pipeline.restore.restore import RestoreReport


def as_json(report: RestoreReport) -> dict[str, Any]:
    """The stable JSON form, without its kind and version."""
    return {
        "log_dir": str(report.log_dir),
        "free_bytes": report.free_bytes,
        "partitions": [outcome.to_json() for outcome in report.outcomes],
    }


def show(report: RestoreReport, *, colors: bool, dry_run: bool) -> None:
    """A table, and below it what a person should know."""
    from sidecar.cli.output import print_table, remark, size

    rows = []
    for outcome in report.outcomes:
        row = outcome.to_json()
        name = f"{row['topic']}-{row['partition']}"
        offsets = (row["start_offset"], row["end_offset"])
        modes = (row["topic_id"], row["leader_epochs"], row["producer_state"])
        rows.append(
            (name, row["state"], *offsets, row["segments"], row["segments_resumed"], size(outcome.size_bytes), *modes)
        )
    columns = ["partition", "", "from#", "to#", "segments#", "resumed#", "size#", "topic id", "epochs", "producers"]
    title = f"Plan for {report.log_dir} (nothing was done)" if dry_run else f"Restored into {report.log_dir}"
    print_table(title, columns, rows, colors=colors)
    for text in _remarks(report):
        remark(text)


def _remarks(report: RestoreReport) -> list[str]:
    texts = []
    for outcome in report.outcomes:
        name, log = outcome.plan.topic_partition, outcome.log
        if outcome.decisions and outcome.decisions.reason and not outcome.is_done:
            texts.append(f"{name}: {outcome.decisions.reason}")
        texts += [f"{name}: not in the archive, recorded as lost: {hole}" for hole in outcome.plan.lost]
        if outcome.plan.deleted_before_offset:
            texts.append(
                f"{name}: records below offset {outcome.plan.deleted_before_offset} were deleted on purpose on the broker and are "
                f"left out; --deleted-records restore brings back what the archive has of them"
            )
        if outcome.plan.blank_below is not None:
            texts.append(
                f"{name}: of producers nothing is known from below offset {outcome.plan.blank_below}, where the archive begins or "
                f"offsets are lost: retries of what they wrote there, and transactions begun there, are not recognised"
            )
        if outcome.plan.asks_for_more:
            texts.append(f"{name}: the archive holds less than the offsets that were asked for")
        if log and log.open_transactions and not log.aborted:
            texts.append(
                f"{name}: {len(log.open_transactions)} transactions are open at the end, the first since offset "
                f"{log.open_transactions[0]}: read_committed readers wait there until `kafka-transactions abort` ends them "
                f"(or restore with --open-transactions abort)"
            )
        if outcome.problem:
            texts.append(
                f"{name} stopped: {outcome.problem}. {name}.restoring stays, and no broker starts beside it: run the same command "
                f"again once the cause is removed, or remove that directory"
            )
    return texts
