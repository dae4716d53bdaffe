"""`restore`: from an archive back to a log directory that a broker starts from."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sidecar.cli.answering import JSON_VERSION, answering_json
from sidecar.cli.archiving import Archive
from sidecar.cli.options import GlobalOptions
from sidecar.errors import SettingsError
from sidecar.pipeline.restore.request import (
    DeletedRecordsMode,
    LeaderEpochMode,
    OpenTransactionMode,
    ProducerStateMode,
    RestoreRequest,
)

if TYPE_CHECKING:
    from sidecar.pipeline.restore.restore import RestoreReport

_RANGE = re.compile(r"([0-9]{0,18}):([0-9]{0,18})", re.ASCII)
_OFFSET_MAX = 2**63 - 1


@answering_json("restore")
def restore(
    options: GlobalOptions,
    topic: Annotated[str, typer.Option(metavar="NAME", help="The topic, by its name.", show_default=False)],
    to: Annotated[
        Path,
        typer.Option(
            metavar="LOG_DIR",
            help="A log dir (log.dirs) of a stopped broker, or an empty directory.",
            show_default=False,
        ),
    ],
    archive: Archive = None,
    partition: Annotated[
        list[int] | None,
        typer.Option(metavar="N", min=0, help="Only this partition. May be given several times. Default: all."),
    ] = None,
    offset_range: Annotated[
        str | None,
        typer.Option(
            metavar="FROM:TO", help="Of one partition: offsets from FROM, up to and without TO; either may be left out."
        ),
    ] = None,
    until_timestamp: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="The log ends before the first batch with a later record. Milliseconds since 1970, or ISO 8601 with a zone.",
        ),
    ] = None,
    topic_id: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="The id that the cluster gave the topic (kafka-topics --describe); none for brokers before 2.8. Default: "
            "what the topic's directories in LOG_DIR say.",
        ),
    ] = None,
    leader_epochs: Annotated[
        LeaderEpochMode | None,
        typer.Option(
            help="keep: as archived, for the cluster the archive is of. flatten: epoch 0 everywhere, for a cluster or a topic made "
            "anew, whose leader epochs are lower. Default: by LOG_DIR's cluster and topic id.",
        ),
    ] = None,
    producer_state: Annotated[
        ProducerStateMode | None,
        typer.Option(
            help="keep: retries of old batches are recognised. drop: for another cluster, which gives the same producer ids to "
            "others. Default: keep in the archive's own cluster.",
        ),
    ] = None,
    open_transactions: Annotated[
        OpenTransactionMode,
        typer.Option(help="Transactions without a marker in what is restored. abort: append markers that end them."),
    ] = OpenTransactionMode.KEEP,
    deleted_records: Annotated[
        DeletedRecordsMode,
        typer.Option(
            help="Records that were deleted on purpose on the broker (DeleteRecords), as far as the archive knows. restore: bring "
            "them back."
        ),
    ] = DeletedRecordsMode.LEAVE_OUT,
    cluster_id: Annotated[
        str | None, typer.Option(metavar="ID", help="Where the archive has the topic of several clusters: which one.")
    ] = None,
    incarnation: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="Where several topics of this name are archived: the topic id, or 0, in their keys."
        ),
    ] = None,
    workers: Annotated[int, typer.Option(metavar="N", min=1, max=64, help="Segments fetched at once.")] = 4,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
) -> int:
    """Write a topic's archived partitions into a log dir from which a broker of any version starts.

    Run the same command again after an interruption: it goes on where it was. Exit code 3 if a partition could not be restored.
    """
    request = RestoreRequest(
        topic=topic,
        log_dir=to,
        partitions=tuple(sorted(set(partition or ()))),
        offset_range=_offset_range(offset_range),
        until_timestamp_ms=_timestamp_ms(until_timestamp),
        topic_id=topic_id,
        leader_epochs=leader_epochs,
        producer_state=producer_state,
        open_transactions=open_transactions,
        deleted_records=deleted_records,
        cluster_id=cluster_id,
        incarnation=incarnation,
    )
    if request.offset_range and len(request.partitions) != 1:
        raise SettingsError(
            "--offset-range is of one partition, whose offsets are nobody else's: give one --partition N"
        )
    if request.offset_range and until_timestamp:
        raise SettingsError("--offset-range and --until-timestamp: give one of them")
    settings = options.settings({"store.url": archive}, calm=True)
    from sidecar.cli.progress import ProgressDisplay
    from sidecar.clock import SystemClock
    from sidecar.pipeline.restore.restore import plan_restore
    from sidecar.pipeline.restore.restore import restore as restore_topic
    from sidecar.storage import open_existing

    store = open_existing(settings.store)
    try:
        if dry_run:
            report = plan_restore(store, SystemClock(), request)
        else:
            with ProgressDisplay(quiet=options.quiet, colors=options.colors) as progress:
                report = restore_topic(store, SystemClock(), request, workers=workers, progress=progress)
    finally:
        store.close()
    if options.json:
        from sidecar.cli.output import print_json

        print_json({"kind": "restore", "version": JSON_VERSION, "dry_run": dry_run, **_as_json(report)})
    else:
        _show(report, colors=options.colors, dry_run=dry_run)
    return report.exit_code


def _offset_range(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    found = _RANGE.fullmatch(text)
    first, end = (int(found[1] or 0), int(found[2] or _OFFSET_MAX)) if found else (1, 0)
    if first >= end:
        raise SettingsError(f"--offset-range {text}: expected FROM:TO with FROM below TO, as 1000:2000, 1000: or :2000")
    return first, end


def _timestamp_ms(text: str | None) -> int | None:
    if text is None:
        return None
    if text.isascii() and text.isdigit():
        return int(text[:19])
    from datetime import datetime

    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise SettingsError(
            f"--until-timestamp {text}: expected milliseconds since 1970, or a time as 2026-11-21T12:00:00Z"
        ) from error
    if found.tzinfo is None:
        raise SettingsError(f"--until-timestamp {text}: in which zone? Add Z, or +01:00")
    return int(found.timestamp() * 1000)


def _as_json(report: RestoreReport) -> dict[str, Any]:
    return {
        "log_dir": str(report.log_dir),
        "free_bytes": report.free_bytes,
        "partitions": [outcome.to_json() for outcome in report.outcomes],
    }


def _show(report: RestoreReport, *, colors: bool, dry_run: bool) -> None:
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
