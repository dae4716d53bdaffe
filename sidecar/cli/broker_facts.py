"""`broker`: the facts about the local broker, as `run` would use them."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sidecar.cli.archiving import Bootstrap, CommandConfig, Excluded, LogDirs, Topics
from sidecar.cli.options import NO_ARCHIVE, GlobalOptions
from sidecar.cli.output import print_answer, print_table, remark, size, utc
from sidecar.clock import SystemClock
from sidecar.errors import BrokerUnavailable, SettingsError
from sidecar.plurals import plural

if TYPE_CHECKING:
    from sidecar.broker.cluster_view import PartitionOffset
    from sidecar.model import PartitionFiles
    from sidecar.partition.facts import PartitionFacts


def broker(
    options: GlobalOptions,
    log_dir: LogDirs = None,
    bootstrap_server: Bootstrap = None,
    command_config: CommandConfig = None,
    topic: Topics = None,
    exclude: Excluded = None,
    producers: Annotated[
        bool, typer.Option("--producers", help="List each producer that the broker remembers.")
    ] = False,
) -> int:
    """Show which partitions the broker leads, their last stable offsets, and their producers. Archives nothing. Exit
    code 1 if the broker does not respond.
    """
    flags = {
        "store.url": NO_ARCHIVE,
        "broker.log_dirs": log_dir or None,
        "broker.connection.bootstrap_servers": bootstrap_server or None,
        "topics.include": topic or None,
        "topics.exclude": exclude or None,
    }
    settings = options.settings(flags, command_config)
    if not settings.broker.connection.is_configured:
        raise SettingsError("no broker is given: use --bootstrap-server, or set broker.connection.bootstrap_servers")
    if not settings.broker.log_dirs:
        raise SettingsError("no log directory is given: use --log-dir, or set broker.log_dirs in the settings file")
    from sidecar.broker.cluster_view import (
        CLUSTER_DENIED,
        DESCRIBE,
        READ_UNCOMMITTED,
        RequestProblem,
        ask_producers,
        list_offsets,
        log_dirs,
        missing_right,
    )
    from sidecar.broker.connection import BrokerConnection
    from sidecar.cli.output import remark
    from sidecar.partition.wait_reason import render
    from sidecar.runner.assembly import scanner
    from sidecar.runner.configured_facts import open_facts

    with open_facts(settings, SystemClock()) as facts:
        facts.refresh()
        if away := facts.state().away:
            raise BrokerUnavailable(render(away))
        found = [(files, facts.partition(files)) for files in scanner(settings)().partitions]
        broker_id, cluster_id = facts.broker_id(), facts.cluster_id()
        missing_rights = list(facts.state().missing_rights)
    with closing(BrokerConnection(settings.broker.connection)) as connection:
        led = [row.topic_partition for _, row in found if row.leads]
        reported = ask_producers(connection, broker_id, led)
        directories = log_dirs(connection, broker_id)
        epochs = {row.topic_partition: row.leader_epoch for _, row in found if row.leads}
        high_watermarks = list_offsets(connection, broker_id, epochs, isolation_level=READ_UNCOMMITTED)
    rows = [_row(files, row, high_watermarks.get(files.topic_partition)) for files, row in found]
    for (files, _), shown in zip(found, rows, strict=True):
        known = None if reported is None else reported.values.get(files.topic_partition)
        shown["producers"] = None if known is None else [asdict(producer) for producer in known]
    missing_rights += missing_right(reported.problems.values() if reported else (), "its live producers are not shown")
    if not directories:
        missing_rights += missing_right(
            [RequestProblem(CLUSTER_DENIED, DESCRIBE)], "the broker's log dirs are not shown"
        )
    head = {"cluster_id": cluster_id, "broker_id": broker_id, "missing_rights": missing_rights}
    _show(
        options, head, rows, [asdict(found) for found in directories], with_producers=producers and reported is not None
    )
    if reported is None and not options.json:
        remark("Producers are not shown: brokers before 2.8 do not report them")
    return 0


def _row(files: PartitionFiles, facts: PartitionFacts, high_watermark: PartitionOffset | None) -> dict[str, Any]:
    from sidecar.partition.wait_reason import render

    return {
        **asdict(files.topic_partition),
        "topic_id": facts.topic_id,
        "leads": facts.leads,
        "leader_epoch": facts.leader_epoch,
        "last_stable_offset": facts.stable_end_offset if facts.leads else None,
        "high_watermark": None if high_watermark is None or high_watermark.problem else high_watermark.offset,
        "log_start_offset": facts.cluster_start_offset,
        "reason": render(facts.reason),
    }


def _show(
    options: GlobalOptions,
    head: dict[str, Any],
    rows: list[dict[str, Any]],
    directories: list[dict[str, Any]],
    *,
    with_producers: bool,
) -> None:
    if options.json:
        print_answer("broker", {**head, "partitions": rows, "log_dirs": directories})
        return
    columns = [
        "partition",
        "leads",
        "epoch#",
        "log start#",
        "last stable#",
        "high watermark#",
        "producers#",
        "open since#",
    ]
    print_table(
        f"Broker {head['broker_id']} of cluster {head['cluster_id']}",
        columns,
        [
            (
                f"{row['topic']}-{row['partition']}",
                "yes" if row["leads"] else "no",
                row["leader_epoch"],
                row["log_start_offset"],
                row["last_stable_offset"],
                row["high_watermark"],
                None if row["producers"] is None else len(row["producers"]),
                _open_since(row["producers"]),
            )
            for row in rows
        ],
        colors=options.colors,
    )
    if with_producers:
        _show_producers(rows, colors=options.colors)
    for right in head["missing_rights"]:
        remark(right)
    for found in directories:
        moving = f", {found['moving']} being moved there" if found["moving"] else ""
        problem = f", {found['problem']}" if found["problem"] else ""
        remark(
            f"{found['path']}: {plural(found['partitions'], 'partition')}, {size(found['size_bytes'])}{moving}{problem}"
        )


def _show_producers(rows: list[dict[str, Any]], *, colors: bool) -> None:
    """Whom `snapshots` and bundles should know too; a transaction that is open for long holds back archive and cleaner."""
    columns = ["partition", "producer#", "epoch#", "last sequence#", "last batch", "coordinator epoch#", "open since#"]
    shown = [
        (
            f"{row['topic']}-{row['partition']}",
            one["producer_id"],
            one["producer_epoch"],
            one["last_sequence"],
            utc(one["last_timestamp_ms"]),
            one["coordinator_epoch"],
            one["transaction_start_offset"] if one["transaction_start_offset"] >= 0 else None,
        )
        for row in rows
        for one in row["producers"] or ()
    ]
    print_table("Producers", columns, shown, colors=colors)


def _open_since(producers: list[dict[str, Any]] | None) -> int | None:
    offsets = [one["transaction_start_offset"] for one in producers or () if one["transaction_start_offset"] >= 0]
    return min(offsets, default=None)
