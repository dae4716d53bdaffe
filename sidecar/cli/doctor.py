"""`doctor`: checks everything that archiving needs, and says what to do."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sidecar.cli.archiving import (
    Archive,
    Bootstrap,
    CommandConfig,
    Excluded,
    SingleWriter,
    StateDir,
    Topics,
)
from sidecar.cli.options import NO_ARCHIVE, GlobalOptions
from sidecar.cli.output import print_json, print_table, remark
from sidecar.doctor.findings import Area
from sidecar.errors import SettingsError

_ABOUT_THE_STORE = {Area.SETTINGS, Area.STORE}
"""Areas that need `store.url`."""

LogDirs = Annotated[
    list[Path] | None,
    typer.Option(
        "--log-dir",
        metavar="DIRECTORY",
        readable=False,  # that it cannot be read is a finding, not wrong usage
        help="A log directory of the broker. May be given several times.",
    ),
]

if TYPE_CHECKING:
    from rich.text import Text

    from sidecar.doctor.findings import Report, Verdict


def doctor(
    options: GlobalOptions,
    log_dir: LogDirs = None,
    archive: Archive = None,
    topic: Topics = None,
    exclude: Excluded = None,
    bootstrap_server: Bootstrap = None,
    command_config: CommandConfig = None,
    assume_leader: Annotated[
        bool,
        typer.Option("--assume-leader", help="Check for `run --assume-leader`, which queries no broker for leaders."),
    ] = False,
    state_dir: StateDir = None,
    single_writer: SingleWriter = False,
    area: Annotated[
        list[Area] | None, typer.Option(help="Area to check. May be given several times. Default: all.")
    ] = None,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", min=1, max=600, help="Time limit of each check.")] = 30.0,
) -> int:
    """Check settings, log directories, broker, store and machine. Each line is ok, warning or problem, with what to do.
    Safe while a sidecar and a broker run: it only writes probe objects to the store, and removes them. Exit code 0
    without a problem, otherwise by kind: 2 settings or directories that are wrong, 3 files that cannot be read or full
    disks, 1 broker, 6 store. Problems of several kinds: 3.
    """
    areas = tuple(area or Area)
    flags: dict[str, Any] = {
        "broker.log_dirs": log_dir or None,
        "store.url": archive or (None if _ABOUT_THE_STORE.intersection(areas) else NO_ARCHIVE),
        "topics.include": topic or None,
        "topics.exclude": exclude or None,
        "broker.connection.bootstrap_servers": bootstrap_server or None,
        "broker.assume_leader": assume_leader or None,
        "run.state_dir": state_dir,
        "store.single_writer": single_writer or None,
    }
    report = _examined(options, flags, command_config, areas, timeout)
    if options.json:
        print_json(report.as_json())
    else:
        _show(options, report)
    if report.has_hung:
        # A thread that hangs in a system call would hold the process for ever.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(report.exit_code)
    return report.exit_code


def _examined(
    options: GlobalOptions,
    flags: dict[str, Any],
    command_config: Path | None,
    areas: tuple[Area, ...],
    timeout_s: float,
) -> Report:
    from sidecar.config.model import LogLevel
    from sidecar.doctor.doctor import doctor as examine_all
    from sidecar.doctor.doctor import without_settings
    from sidecar.logs import Redaction

    try:
        loaded = options.load(flags, command_config)
    except SettingsError as error:
        return without_settings(str(error), error.exit_code, areas)
    # What is worth a line in the log is worth a line of the report.
    options.set_up_logs(loaded, LogLevel.ERROR)
    cleaned = Redaction(loaded.secrets()).text
    return examine_all(loaded.settings, areas=areas, timeout_s=timeout_s, cleaned=cleaned)


def _show(options: GlobalOptions, report: Report) -> None:
    from sidecar.doctor.findings import Verdict

    rows = [
        (found.area.replace("_", " "), found.check, _styled(found.outcome.verdict), reported)
        for found in report.findings
        for reported in ["; ".join(filter(None, (found.outcome.detail, found.outcome.advice)))]
    ]
    print_table("Doctor", ["area", "check", "verdict", "result, and what to do"], rows, colors=options.colors)
    counts = report.counts()
    remark(f"problems: {counts[Verdict.PROBLEM]}, warnings: {counts[Verdict.WARNING]}, ok: {counts[Verdict.OK]}")


def _styled(verdict: Verdict) -> Text:
    from rich.text import Text

    styles = {"ok": "green", "warning": "yellow", "problem": "bold red", "not_checked": "dim"}
    return Text(verdict.value.replace("_", " "), styles[verdict.value])
