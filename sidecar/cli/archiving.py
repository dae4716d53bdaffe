"""`backfill` and `run`: the commands that write to the archive."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from sidecar.cli.engines import Engine, Master, require_local_spark, spark_flags
from sidecar.cli.options import GlobalOptions, warn_unmatched
from sidecar.cli.output import ProgressDisplay, print_json, print_table, remark, size

if TYPE_CHECKING:
    from sidecar.config import LoadedSettings
    from sidecar.daemon import Flags
    from sidecar.runner.backfill import BackfillReport

LogDirs = Annotated[
    list[Path] | None,
    typer.Option("--log-dir", metavar="DIRECTORY", help="A log directory of the broker. May be given several times."),
]
Archive = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Where the archive is: s3://bucket/prefix, a directory, or another fsspec URL."),
]
Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic", metavar="REGEX", help="Topics to include; matches the whole name. May be given several times."
    ),
]
Excluded = Annotated[
    list[str] | None,
    typer.Option(
        "--exclude", metavar="REGEX", help="Topics to exclude; matches the whole name. May be given several times."
    ),
]
Bootstrap = Annotated[
    list[str] | None,
    typer.Option(
        "--bootstrap-server",
        metavar="HOST:PORT",
        help="Broker to query for leaders and last stable offsets. May be given several times.",
    ),
]
CommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        help="client.properties as in Kafka's tools: TLS and SASL for the connection to the broker.",
    ),
]
AssumeLeader = Annotated[
    bool, typer.Option("--assume-leader", help="Archive without a check that this broker is the leader.")
]
ClusterId = Annotated[
    str | None,
    typer.Option(
        metavar="ID",
        help="Cluster id in object keys. Needed if meta.properties has none, or the archive uses another one.",
    ),
]
StateDir = Annotated[
    Path | None, typer.Option(metavar="DIRECTORY", help="Directory for the journal of uploads in progress.")
]
SingleWriter = Annotated[
    bool,
    typer.Option(
        "--single-writer", help="Promise that no other process writes there: accept a store without create-only puts."
    ),
]


def backfill(
    options: GlobalOptions,
    log_dir: LogDirs = None,
    archive: Archive = None,
    topic: Topics = None,
    exclude: Excluded = None,
    bootstrap_server: Bootstrap = None,
    command_config: CommandConfig = None,
    assume_leader: AssumeLeader = False,
    cluster_id: ClusterId = None,
    state_dir: StateDir = None,
    single_writer: SingleWriter = False,
    engine: Engine = None,
    master: Master = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report what would be done; change nothing.")] = False,
) -> int:
    """Archive every rolled segment that is stable now, once, and report. Exit code 3 if a partition stopped, or if it
    is unknown whether this broker leads: give --bootstrap-server to query brokers, or --assume-leader.
    """
    flags = _flags(log_dir, archive, topic, exclude, assume_leader, cluster_id, state_dir, single_writer)
    flags |= {"broker.connection.bootstrap_servers": bootstrap_server or None, **spark_flags(master, engine)}
    settings = options.settings(flags, command_config, calm=True)
    from sidecar.cli.engines import RunEngines
    from sidecar.logformat.files import topics_of
    from sidecar.runner.backfill import backfill as archive_once

    require_local_spark(settings)
    engines = RunEngines(settings)
    with engines, ProgressDisplay(quiet=options.quiet or dry_run, colors=options.colors) as progress:
        report = archive_once(
            settings, dry_run=dry_run, progress=progress, reader=engines.reader(), config_file=options.config_file
        )
    warn_unmatched(settings, topics_of(settings.broker.log_dirs), "in these log directories")
    if options.json:
        print_json(report.as_json())
    else:
        _show(report, colors=options.colors)
    return report.exit_code


def run(
    options: GlobalOptions,
    log_dir: LogDirs = None,
    archive: Archive = None,
    topic: Topics = None,
    exclude: Excluded = None,
    bootstrap_server: Bootstrap = None,
    command_config: CommandConfig = None,
    assume_leader: AssumeLeader = False,
    cluster_id: ClusterId = None,
    state_dir: StateDir = None,
    single_writer: SingleWriter = False,
    engine: Engine = None,
    master: Master = None,
    http_bind: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Address and port of the status page, /metrics, /healthz, /readyz and /status."
        ),
    ] = None,
    retry_start: Annotated[
        bool,
        typer.Option(
            "--retry-start",
            help="If a start fails, stay up, serve the status page, and start again. For containers next to a broker.",
        ),
    ] = False,
) -> int:
    """Archive each segment when the broker has rolled it, until SIGTERM."""
    flags = _flags(log_dir, archive, topic, exclude, assume_leader, cluster_id, state_dir, single_writer)
    flags |= {"broker.connection.bootstrap_servers": bootstrap_server or None, **spark_flags(master, engine)}
    flags["http.bind"] = http_bind
    share_arenas()
    start = partial(_start, options, partial(options.load, flags, command_config))
    if not retry_start:
        return start()
    early = options.load_early({"http.bind": http_bind})
    options.set_up_logs(early)
    from sidecar.supervisor import Supervisor

    supervisor = Supervisor(early.settings.http, options.config_file)

    def adopt(loaded: LoadedSettings) -> None:
        supervisor.http = loaded.settings.http

    return supervisor.run(lambda process, failure: start(adopt, process, failure))


def _start(
    options: GlobalOptions,
    load: Callable[[], LoadedSettings],
    known: Callable[[LoadedSettings], None] = lambda _loaded: None,
    process: Flags | None = None,
    failure: str = "",
) -> int:
    """Read the settings, hand them to `known`, and archive. For the rest see `daemon.run`."""
    from sidecar.config.changes import SettingsSource

    source = SettingsSource(options.config_file, load, options.set_up_logs)
    source.set_up_logs(source.loaded)
    known(source.loaded)
    settings = source.loaded.settings
    from sidecar import daemon
    from sidecar.cli.engines import RunEngines
    from sidecar.host.limits import allow_open_files

    allow_open_files()
    freeze()
    with RunEngines(settings) as engines:
        engines.report()
        return daemon.run(
            settings,
            engines=engines,
            source=source,
            settled=freeze,
            reader=engines.reader(),
            flags=process,
            failure=failure,
        )


def _flags(
    log_dirs: list[Path] | None,
    archive: str | None,
    topics: list[str] | None,
    excluded: list[str] | None,
    assume_leader: bool,
    cluster_id: str | None,
    state_dir: Path | None,
    single_writer: bool,
) -> dict[str, Any]:
    return {
        "broker.log_dirs": log_dirs or None,
        "broker.assume_leader": assume_leader or None,
        "broker.cluster_id": cluster_id,
        "store.url": archive,
        "store.single_writer": single_writer or None,
        "topics.include": topics or None,
        "topics.exclude": excluded or None,
        "run.state_dir": state_dir,
    }


def _show(report: BackfillReport, *, colors: bool) -> None:
    if report.dry_run:
        _show_plan(report, colors=colors)
    else:
        rows = [
            (
                f"{row.topic}-{row.partition}",
                row.segments_planned,
                row.segments_uploaded,
                row.segments_waiting,
                size(row.bytes_uploaded),
                row.snapshots_broker,
                row.snapshots_rebuilt,
                row.end_offset,
            )
            for row in report.rows
        ]
        columns = ["partition", "planned#", "archived#", "waiting#", "size#", "snapshots: broker's#", "rebuilt#"]
        print_table("Back-fill", [*columns, "archive ends at#"], rows, colors=colors)
    for row in report.rows:
        if row.stopped_because:
            name = f"{row.topic}-{row.partition}"
            text = row.stopped_because.removeprefix(f"{name}: ")
            remark(f"{name} {'stopped' if row.error else 'waits'}: {text}")
    if not report.dry_run and any(row.error for row in report.rows):
        remark("some partitions stopped: correct what the errors above name, then run backfill again")
    elif not report.dry_run and any(row.segments_waiting for row in report.rows):
        remark("segments wait for the reasons above: run backfill again when these are over")
    for problem in report.problems:
        remark(f"problem: {problem}")


def _show_plan(report: BackfillReport, *, colors: bool) -> None:
    rows = [
        (
            f"{row.topic}-{row.partition}",
            row.segments_planned,
            row.segments_waiting,
            size(sum(segment["size_bytes"] for segment in report.planned.get(f"{row.topic}-{row.partition}", ()))),
            row.snapshots_missing,
        )
        for row in report.rows
    ]
    columns = ["partition", "planned#", "waiting#", "size#", "snapshots missing on disk#"]
    print_table("Plan (nothing was done)", columns, rows, colors=colors)
    planned = [
        (partition, segment["base_offset"], segment["end_offset"], size(segment["size_bytes"]))
        for partition, segments in report.planned.items()
        for segment in segments
    ]
    print_table("Segments", ["partition", "from#", "to#", "size#"], planned, colors=colors)
    remark(
        "a dry run does not read the segments: a segment with an open transaction waits, and a damaged one stops "
        "its partition"
    )


ARENAS: Final = 2
"""Where glibc allows eight per core: what a start leaves free in one cannot be used by the threads of another."""
_M_ARENA_MAX: Final = -8
"""Source: malloc.h of glibc."""
CHOSEN_BY_USER: Final = "MALLOC_ARENA_MAX"
TUNABLES: Final = "GLIBC_TUNABLES"
_ARENA_TUNABLE: Final = "glibc.malloc.arena_max="
"""Source: The Tunables Framework of glibc's manual; entries are parted by colons."""


def share_arenas() -> bool:
    """Let all threads share two arenas of the C library; before the first thread, or it has one of its own.

    False where that is not ours to say: the user chose a number, or the C library knows no arenas (musl).
    """
    import ctypes

    tunables = os.environ.get(TUNABLES, "").split(":")
    if os.environ.get(CHOSEN_BY_USER) or any(entry.startswith(_ARENA_TUNABLE) for entry in tunables):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(_M_ARENA_MAX, ARENAS))


def freeze() -> None:
    """Take what is there now out of the sight of the garbage collector: modules before the work, and what a start has learned.

    Else each full collection walks all of it, and none comes before garbage is a quarter of it. Frozen things still go when
    nothing refers to them any more; only cycles of them stay.
    """
    gc.collect()
    gc.freeze()
