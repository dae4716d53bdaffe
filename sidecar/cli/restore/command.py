"""`restore`: from an archive back to a log directory that a broker starts from."""

from __future__ import annotations

import os
import re
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sidecar.cli.archiving import Archive, CommandConfig
from sidecar.cli.options import GlobalOptions
from sidecar.cli.output import ProgressDisplay, print_answer, remark
from sidecar.cli.restore.report import as_json, show
from sidecar.clock import SystemClock
from sidecar.errors import SettingsError
from sidecar.restore.request import (
    OPEN_END,
    DeletedRecordsMode,
    LeaderEpochMode,
    OpenTransactionMode,
    ProducerStateMode,
    RestoreRequest,
)

if TYPE_CHECKING:
    from sidecar.config import Settings
    from sidecar.restore.restore import RestoreReport

_RANGE = re.compile(r"([0-9]{0,18}):([0-9]{0,18})", re.ASCII)
_TIMESTAMP_DIGITS_MAX = 14
"""To the year 5138."""


def restore(
    options: GlobalOptions,
    topic: Annotated[str, typer.Option(metavar="NAME", help="Name of the topic.", show_default=False)],
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
            metavar="FROM:TO",
            help="Restore offsets FROM (inclusive) to TO (exclusive) of one partition. Either may be omitted.",
        ),
    ] = None,
    until_timestamp: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="End the log before the first batch with a later record, or the first later transaction marker. "
            "Milliseconds since 1970, or ISO 8601 with a time zone.",
        ),
    ] = None,
    topic_id: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="The topic id of the target cluster (kafka-topics.sh --describe); none for brokers before 2.8. Default: "
            "from --bootstrap-server, else from the topic's directories in LOG_DIR.",
        ),
    ] = None,
    bootstrap_server: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST:PORT",
            help="A running broker of LOG_DIR's cluster, to query topic id and leader epochs. May be given several times.",
        ),
    ] = None,
    command_config: CommandConfig = None,
    leader_epochs: Annotated[
        LeaderEpochMode | None,
        typer.Option(
            help="keep: as archived, for the cluster that the archive is from. flatten: epoch 0 everywhere, for a "
            "new cluster or a re-created topic, whose leader epochs are lower. Default: chosen by LOG_DIR's "
            "cluster and topic id.",
        ),
    ] = None,
    producer_state: Annotated[
        ProducerStateMode | None,
        typer.Option(
            help="keep: brokers recognise retries of old batches. drop: for another cluster, where the same "
            "producer ids belong to other producers. Default: keep for the archived topic in its own cluster.",
        ),
    ] = None,
    open_transactions: Annotated[
        OpenTransactionMode,
        typer.Option(
            help=(
                "Transactions without an end marker in the restored log. keep: leave them open. abort: append abort "
                "markers."
            )
        ),
    ] = OpenTransactionMode.KEEP,
    deleted_records: Annotated[
        DeletedRecordsMode,
        typer.Option(
            help="Records that DeleteRecords deleted on the broker, as far as the archive knows. restore: include them."
        ),
    ] = DeletedRecordsMode.LEAVE_OUT,
    cluster_id: Annotated[
        str | None,
        typer.Option(metavar="ID", help="The cluster id, if the archive has this topic from several clusters."),
    ] = None,
    incarnation: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="The topic id (or 0) in the object keys, if several topics of this name are archived.",
        ),
    ] = None,
    workers: Annotated[
        int, typer.Option(metavar="N", min=1, max=64, help="Number of segments fetched in parallel.")
    ] = 4,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report what would be done; change nothing.")] = False,
) -> int:
    """Write a topic's archived partitions into a log dir from which a broker of any version starts. After an
    interruption run the same command again: it continues. Exit code 3 if a partition could not be restored.
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
        raise SettingsError("--offset-range needs exactly one --partition")
    if request.offset_range and until_timestamp:
        raise SettingsError("give only one of --offset-range and --until-timestamp")
    settings = options.settings(
        {"store.url": archive, "broker.connection.bootstrap_servers": bootstrap_server or None},
        command_config,
        calm=True,
    )
    log_dirs = {os.path.realpath(path): path for path in settings.broker.log_dirs}
    if log_dirs.pop(os.path.realpath(to), None):
        request = replace(request, other_log_dirs=tuple(log_dirs.values()))
    asks_cluster = bool(bootstrap_server or command_config)
    if asks_cluster and not settings.broker.connection.is_configured:
        raise SettingsError(f"--command-config {command_config}: no broker is named; add --bootstrap-server HOST:PORT")
    try:
        report = _done(options, settings, request, asks_cluster=asks_cluster, workers=workers, dry_run=dry_run)
    except SystemExit as interruption:
        tell_what_stays(request, interruption.code, json=options.json)
        raise
    if options.json:
        print_answer("restore", {"dry_run": dry_run, **as_json(report)})
    else:
        show(report, colors=options.colors, dry_run=dry_run)
    if report.no_room:
        remark(f"error: {report.no_room}")
    return report.exit_code


def _done(
    options: GlobalOptions,
    settings: Settings,
    request: RestoreRequest,
    *,
    asks_cluster: bool,
    workers: int,
    dry_run: bool,
) -> RestoreReport:
    from sidecar.restore.restore import plan_restore
    from sidecar.restore.restore import restore as restore_topic
    from sidecar.storage.opening import open_existing

    store = open_existing(settings.store)
    try:
        if asks_cluster:
            from sidecar.broker.connection import BrokerConnection
            from sidecar.restore.lineage_selection import require_archived
            from sidecar.restore.request import ask_cluster

            # First: a topic that is mistyped is in neither, and the cluster's advice would be to create it.
            require_archived(store, request.topic)
            with closing(BrokerConnection(settings.broker.connection)) as connection:
                request = replace(request, cluster=ask_cluster(connection, request.topic))
        if dry_run:
            return plan_restore(store, SystemClock(), request)
        with ProgressDisplay(quiet=options.quiet, colors=options.colors) as progress:
            return restore_topic(store, SystemClock(), request, workers=workers, progress=progress)
    finally:
        store.close()


def _offset_range(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    found = _RANGE.fullmatch(text)
    first, end = (int(found[1] or 0), int(found[2] or OPEN_END)) if found else (1, 0)
    if first >= end:
        raise SettingsError(f"--offset-range {text}: expected FROM:TO with FROM below TO, as 1000:2000, 1000: or :2000")
    return first, end


def _timestamp_ms(text: str | None) -> int | None:
    if text is None:
        return None
    if text.isascii() and text.isdigit():
        if len(text) > _TIMESTAMP_DIGITS_MAX:
            raise SettingsError(
                f"--until-timestamp {text}: is not a time in milliseconds since 1970: those have at most "
                f"{_TIMESTAMP_DIGITS_MAX} digits (are these microseconds?)"
            )
        return int(text)
    from datetime import datetime

    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise SettingsError(
            f"--until-timestamp {text}: expected milliseconds since 1970, or a time as 2026-11-21T12:00:00Z"
        ) from error
    if found.tzinfo is None:
        raise SettingsError(f"--until-timestamp {text}: time zone missing. Add Z, or an offset such as +01:00")
    return int(found.timestamp() * 1000)


def tell_what_stays(request: RestoreRequest, exit_code: object, *, json: bool) -> None:
    """A remark, and with `json` one JSON object on stdout."""
    from sidecar.restore.staging import what_stays

    partitions = _unfinished(request)
    names = [str(found["directory"]) for found in partitions]
    if names:
        reported = f"interrupted: {what_stays(request.log_dir, names)}"
    else:
        reported = f"interrupted: nothing unfinished remains in {request.log_dir}"
    remark(reported)
    if json:
        answer = {"error": reported, "exit_code": exit_code, "interrupted": True, "log_dir": str(request.log_dir)}
        left = {"finished": _finished(request), "unfinished": partitions, "resumable": bool(names)}
        print_answer("restore", {**answer, **left})


def _unfinished(request: RestoreRequest) -> list[dict[str, Any]]:
    """Staging directories, with the segments that are whole in them."""
    from sidecar.restore.staging import StagedPartition, unfinished

    rows = []
    for name, partition in unfinished(request.log_dir, request.topic).items():
        sizes = StagedPartition(request.log_dir, partition).sizes()
        logs = [size_bytes for file, size_bytes in sizes.items() if file.endswith(".log") and size_bytes]
        rows.append(
            {"partition": partition.partition, "directory": name, "segments": len(logs), "log_bytes": sum(logs)}
        )
    return rows


def _finished(request: RestoreRequest) -> list[str]:
    """Directories that have their names already, while the command was not through."""
    from sidecar.restore.target import CommandNote

    return sorted(path.name for path in CommandNote(request.log_dir, request.topic).finished())
