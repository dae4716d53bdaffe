"""The commands and their names."""

from __future__ import annotations

import platform

import typer

from sidecar import __version__
from sidecar.cli import (
    archiving,
    broker_facts,
    clearing,
    configuring,
    doctor,
    kubernetes,
    pod_settings,
    preparing,
    reporting,
    spark_packages,
)
from sidecar.cli.compact import command as compacting
from sidecar.cli.inspect import command as inspecting
from sidecar.cli.options import GlobalOptions, root_command, with_global_options
from sidecar.cli.restore import command as restoring
from sidecar.cli.snapshots import command as snapshots
from sidecar.cli.usage import OneLineErrors

JSON_VERSION = 1

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
    from sidecar.cli.output import print_json, print_line

    if options.json:
        found = {"tiered_sidecar": __version__, "python": platform.python_version()}
        print_json({"kind": "version", "version": JSON_VERSION, **found})
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
    spark_packages.spark_packages,
    version,
):
    app.command()(with_global_options(command))
for command in (configuring.show, configuring.validate, configuring.schema):
    config.command()(with_global_options(command))
for snapshot_command in (snapshots.rebuild, snapshots.check, snapshots.heal):
    producer_snapshots.command()(with_global_options(snapshot_command))
app.add_typer(producer_snapshots, name="snapshots")
for kubernetes_command in (kubernetes.render, pod_settings.settings):
    k8s.command()(with_global_options(kubernetes_command))
app.add_typer(config, name="config")
app.add_typer(k8s, name="k8s")
