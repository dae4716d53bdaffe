"""The commands and their names."""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import typer
from typer.core import TyperGroup

from sidecar import __version__
from sidecar.cli import archiving, broker_facts, clearing, configuring, doctor, kubernetes, preparing, reporting
from sidecar.cli.compact import command as compacting
from sidecar.cli.inspect import command as inspecting
from sidecar.cli.options import GlobalOptions, root_command, with_global_options
from sidecar.cli.output import print_answer, print_json, print_line
from sidecar.cli.restore import command as restoring
from sidecar.cli.snapshots import command as snapshots

UsageError: Any = typer.BadParameter.__base__
"""The class of all usage errors. Where typer keeps it differs between its versions."""


class OneLineErrors(TyperGroup):
    """A command whose usage errors are one line, without boxes."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """See click's `Command.main`."""
        inner = partial(super().main, args, prog_name, complete_var, False, windows_expand_args, **extra)
        if not standalone_mode:
            return inner()
        try:
            code = inner()
        except UsageError as error:
            if type(error).__name__ != "NoArgsIsHelpError":  # that one has shown the help already
                what = _one_line(error)
                sys.stderr.write(f"error: {what}\n")
                if "--json" in (sys.argv[1:] if args is None else args):
                    _answer(error, what)
            sys.exit(error.exit_code)
        sys.exit(code if isinstance(code, int) else 0)


def _answer(error: Any, what: str) -> None:
    """The object that whoever reads stdout expects; see `answering_json`."""
    names: list[str] = []
    context = error.ctx
    while context is not None and context.parent is not None:
        names.insert(0, context.info_name)
        context = context.parent
    found = {"kind": "_".join(names).replace("-", "_") or "usage", "version": 1, "error": what}
    print_json({**found, "exit_code": error.exit_code})


def _one_line(error: Any) -> str:
    text = " ".join(error.format_message().split()).rstrip(".").replace(": Value error, ", ": ")
    command = error.ctx.command_path if error.ctx is not None else "tiered-sidecar"
    return f"{text[:1].lower()}{text[1:]}; see {command} --help"


app = typer.Typer(
    name="tiered-sidecar",
    cls=OneLineErrors,
    help="Moves every finished Kafka log segment to S3-compatible storage as a complete, verified bundle.\n\n"
    "Exit codes: 0 ok, 1 failure, 2 usage or settings, 3 partial, 4 verification mismatch, 5 fenced, "
    "6 storage unreachable or unfit, 130 interrupted, 141 the reader of stdout went away, 143 stopped before it was "
    "drained.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
producer_snapshots = typer.Typer(
    help="Producer snapshots of a broker's directories: rebuild, check, and create the missing ones.",
    no_args_is_help=True,
)
k8s = typer.Typer(help="Kubernetes: what puts the sidecar beside brokers.", no_args_is_help=True)
config = typer.Typer(help="Show, check and describe the settings.", no_args_is_help=True)


def version(options: GlobalOptions) -> int:
    """Print the version."""
    if options.json:
        found = {"tiered_sidecar": __version__, "python": platform.python_version()}
        print_answer("version", found)
    else:
        print_line(f"tiered-sidecar {__version__}")
    return 0


app.callback()(root_command())
for command in (
    archiving.backfill,
    archiving.run,
    broker_facts.broker,
    reporting.status,
    reporting.verify,
    restoring.restore,
    compacting.compact,
    clearing.gc,
    preparing.prepare,
    doctor.doctor,
    inspecting.inspect,
    preparing.spark_packages,
    version,
):
    app.command()(with_global_options(command))
for command in (configuring.show, configuring.validate, configuring.schema):
    config.command()(with_global_options(command))
for snapshot_command in (snapshots.rebuild, snapshots.check, snapshots.heal):
    producer_snapshots.command()(with_global_options(snapshot_command))
app.add_typer(producer_snapshots, name="snapshots")
for kubernetes_command in (kubernetes.render, kubernetes.settings):
    k8s.command()(with_global_options(kubernetes_command))
app.add_typer(config, name="config")
app.add_typer(k8s, name="k8s")
