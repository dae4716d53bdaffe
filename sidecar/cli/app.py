"""The commands and their names."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, Final

import typer
from typer.core import TyperGroup

from sidecar import __version__
from sidecar.cli.options import GlobalOptions, kind_of, root_command, with_global_options
from sidecar.cli.output import print_answer, print_line

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
    """The object that whoever reads stdout expects; see `exit_codes`."""
    print_answer(kind_of(error.ctx, "usage"), {"error": what, "exit_code": error.exit_code})


def _one_line(error: Any) -> str:
    text = " ".join(error.format_message().split()).rstrip(".").replace(": Value error, ", ": ")
    command = error.ctx.command_path if error.ctx is not None else "tiered-sidecar"
    if text.endswith("is not readable"):  # a path of an option
        return (
            f"{text[:1].lower()}{text[1:]}; for a broker's files run as the broker's user, else correct its permissions"
        )
    return f"{text[:1].lower()}{text[1:]}; see {command} --help"


@dataclass(frozen=True, slots=True)
class Group:
    """Commands below one name. `commands`: `module:function` by name, of modules in `sidecar.cli`."""

    help: str
    commands: Mapping[str, str]


class Commands(Mapping[str, Any]):
    """Commands that are imported when they are asked for: a start pays for one, not for all."""

    def __init__(self, places: Mapping[str, str | Group]) -> None:
        self._places = places
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        place = self._places[name]
        if name not in self._made:
            self._made[name] = _command(name, place) if isinstance(place, str) else _group(name, place)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def _command(name: str, place: str) -> Any:
    module, _, function = place.partition(":")
    single = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)
    single.command(name)(with_global_options(getattr(import_module(f"sidecar.cli.{module}"), function)))
    found = typer.main.get_command(single)
    found.short_help = " ".join((found.help or "").split()).partition(". ")[0].rstrip(".") + "."
    return found


def _group(name: str, place: Group) -> Any:
    found = typer.main.get_group(typer.Typer(help=place.help, no_args_is_help=True, rich_markup_mode="rich"))
    found.name, found.commands = name, Commands(place.commands)  # type: ignore[assignment]  # it is only read
    return found


class RootGroup(OneLineErrors):
    """All commands."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.commands = Commands(COMMANDS)  # type: ignore[assignment]  # as above


def version(options: GlobalOptions) -> int:
    """Print the version."""
    import platform

    if options.json:
        found = {"tiered_sidecar": __version__, "python": platform.python_version()}
        print_answer("version", found)
    else:
        print_line(f"tiered-sidecar {__version__}")
    return 0


COMMANDS: Final[Mapping[str, str | Group]] = {
    "backfill": "archiving:backfill",
    "run": "archiving:run",
    "broker": "broker_facts:broker",
    "status": "reporting:status",
    "verify": "reporting:verify",
    "restore": "restore.command:restore",
    "compact": "compact.command:compact",
    "gc": "clearing:gc",
    "prepare": "preparing:prepare",
    "doctor": "doctor:doctor",
    "inspect": "inspect.command:inspect",
    "spark-packages": "preparing:spark_packages",
    "version": "app:version",
    "snapshots": Group(
        "Producer snapshots of a broker's directories: rebuild, check, and create the missing ones.",
        {name: f"snapshots.command:{name}" for name in ("rebuild", "check", "heal")},
    ),
    "config": Group(
        "Show, check and describe the settings.",
        {name: f"configuring:{name}" for name in ("show", "validate", "schema")},
    ),
    "k8s": Group(
        "Kubernetes: render the manifests that run the sidecar next to brokers, and find brokers without it.",
        {
            "render": "kubernetes:render",
            "settings": "kubernetes:settings",
            "missing": "admission:missing",
            "webhook": "admission:webhook",
        },
    ),
}
"""In the order of the help."""

app = typer.Typer(
    name="tiered-sidecar",
    cls=RootGroup,
    help="Archives every finished Kafka log segment to S3-compatible storage as a complete, verified bundle.\n\nExit "
    "codes: 0 ok, 1 failure, 2 usage or settings, 3 partial, 4 verification mismatch, 5 fenced, 6 storage "
    "unreachable or unfit. Signals: 130 interrupted, 141 the reader of stdout closed it, 143 stopped before "
    "all uploads ended.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.callback()(root_command())
