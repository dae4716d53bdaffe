"""The options that every command takes, before or after its name, and what happens when a command fails."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, get_args, get_type_hints

import typer

from sidecar.errors import SettingsError, SidecarError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from sidecar.archive.keys import Lineage
    from sidecar.config import LoadedSettings, Settings
    from sidecar.config.model import LogLevel
    from sidecar.ports import ObjectStore

PANEL = "Options of every command"
CONFIG_VARIABLE = "TIERED_SIDECAR_CONFIG"
NO_ARCHIVE = "memory://none"
"""`store.url` for commands that need no archive, which the settings demand."""


@dataclass(frozen=True, slots=True)
class GlobalOptions:
    """What the options below were set to. Fields are options by name; None, False and empty mean not given."""

    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help=f"Settings file (YAML). Default: the file that {CONFIG_VARIABLE} names.",
            rich_help_panel=PANEL,
        ),
    ] = None
    set_: Annotated[
        list[str],
        typer.Option("--set", metavar="PATH=VALUE", help="Set any setting, e.g. run.workers=4.", rich_help_panel=PANEL),
    ] = field(default_factory=list)
    log_level: Annotated[
        str | None, typer.Option(metavar="LEVEL", help="debug, info, warning or error.", rich_help_panel=PANEL)
    ] = None
    log_format: Annotated[
        str | None, typer.Option(metavar="FORMAT", help="auto, json or console.", rich_help_panel=PANEL)
    ] = None
    json: Annotated[bool, typer.Option("--json", help="Print data on stdout as JSON.", rich_help_panel=PANEL)] = False
    no_color: Annotated[
        bool, typer.Option("--no-color", help="No colors. NO_COLOR does the same.", rich_help_panel=PANEL)
    ] = False
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="No progress, and only errors in the log.", rich_help_panel=PANEL)
    ] = False

    def over(self, outer: GlobalOptions | None) -> GlobalOptions:
        """These, and what was given only before the command's name."""
        if outer is None:
            return self
        merged = {name: getattr(self, name) or getattr(outer, name) for name in OPTION_NAMES}
        merged["set_"] = [*outer.set_, *self.set_]
        return GlobalOptions(**merged)

    @property
    def config_file(self) -> Path | None:
        named = os.environ.get(CONFIG_VARIABLE)
        return self.config or (Path(named) if named else None)

    @property
    def colors(self) -> bool:
        return not self.no_color and not os.environ.get("NO_COLOR")

    def load(self, flags: Mapping[str, Any] | None = None, command_config: Path | None = None) -> LoadedSettings:
        """The settings, with the flags of a command by path, and its --command-config. Raises SettingsError."""
        from sidecar.config import load_settings, read_assignments

        assigned = read_assignments(self.set_)
        own = {"log.level": "error" if self.quiet and not self.log_level else self.log_level}
        own["log.format"] = self.log_format
        given = {path: value for path, value in {**own, **(flags or {})}.items() if value is not None}
        doubly = sorted(assigned.keys() & given.keys())
        if doubly:
            raise SettingsError(f"{doubly[0]} is set twice: by its own option and by --set")
        return load_settings(
            flags={**assigned, **given},
            config_file=self.config_file,
            environment=os.environ,
            client_properties=command_config,
        )

    def load_early(self, flags: Mapping[str, Any]) -> LoadedSettings:
        """What flags and environment say of HTTP server and log: holds while the rest cannot be read.

        The store is `NO_ARCHIVE`. Raises SettingsError for flags only: a start reports what is wrong in the environment, and a
        process that ends is no report.
        """
        from sidecar.config import load_settings, read_assignments
        from sidecar.config.environment import variable_of

        sections = ("http.", "log.")
        assigned = {path: value for path, value in read_assignments(self.set_).items() if path.startswith(sections)}
        own = {"log.level": self.log_level, "log.format": self.log_format, "store.url": NO_ARCHIVE}
        load = partial(load_settings, flags={**assigned, **own, **flags})
        for read in (sections, sections[:1]):
            prefixes = tuple(map(variable_of, read))
            with suppress(SettingsError):
                return load(
                    environment={name: text for name, text in os.environ.items() if name.upper().startswith(prefixes)}
                )
        return load(environment={})

    def settings(
        self, flags: Mapping[str, Any] | None = None, command_config: Path | None = None, *, calm: bool = False
    ) -> Settings:
        """As `load`, and the logs of this process set up accordingly.

        Args:
            calm: the command shows its progress itself: on a terminal log only warnings, unless a level was asked for.
        """
        from sidecar.config.model import LogLevel

        loaded = self.load(flags, command_config)
        is_calm = calm and sys.stderr.isatty() and "log.level" not in loaded.sources
        self.set_up_logs(loaded, LogLevel.WARNING if is_calm else None)
        return loaded.settings

    def set_up_logs(self, loaded: LoadedSettings, level: LogLevel | None = None) -> None:
        """Logs of this process go to stderr. The first event names what of --command-config has no effect.

        Args:
            level: instead of the settings' own.
        """
        from sidecar.cli.output import CurrentStderr
        from sidecar.logs import configure_logging

        log = loaded.settings.log if level is None else loaded.settings.log.model_copy(update={"level": level})
        configure_logging(log, secrets=loaded.secrets(), stream=CurrentStderr(), colors=self.colors)
        if loaded.unused_properties:
            from sidecar.event_log import EVENTS

            EVENTS.warning("command_config_keys_unused", keys=list(loaded.unused_properties))


OPTION_NAMES = tuple(option.name for option in fields(GlobalOptions))


def with_global_options(
    command: Callable[..., int],
) -> Callable[..., None]:
    """A typer command that takes the options above besides its own, and turns errors and results into exit codes.

    The command's first parameter is the options; it returns its exit code.
    """
    own = _parameters(GlobalOptions)
    its_own = _parameters(command)[1:]

    def run(context: typer.Context, **arguments: Any) -> None:
        given = GlobalOptions(**{name: arguments.pop(name) for name in OPTION_NAMES})
        options = given.over(context.find_root().obj)
        with exit_codes(kind_of(context) if options.json else ""):
            code = command(options, **arguments)
        raise typer.Exit(code)

    _sign(run, [*its_own, *own])
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return run


def kind_of(context: Any, otherwise: str = "") -> str:
    """`kind` of a command's JSON objects about errors: its name below the program's, such as `snapshots_check`."""
    names: list[str] = []
    while context is not None and context.parent is not None:
        names.insert(0, context.info_name)
        context = context.parent
    return "_".join(names).replace("-", "_") or otherwise


def root_command() -> Callable[..., None]:
    """The command without a name: keeps the options that stand before the name of one."""

    def remember(context: typer.Context, **arguments: Any) -> None:
        context.obj = GlobalOptions(**arguments)

    _sign(remember, _parameters(GlobalOptions))
    return remember


def _sign(function: Callable[..., None], parameters: list[inspect.Parameter]) -> None:
    """Make typer see these parameters behind the context."""
    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    function.__signature__ = inspect.Signature([context, *parameters])  # type: ignore[attr-defined]  # what inspect asks first
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in (context, *parameters)}


@contextmanager
def exit_codes(kind: str) -> Iterator[None]:
    """Errors raised on purpose end the process with their code and their message, without a traceback.

    `kind`: of the object on stdout that says the same to programs, "" for none.
    """
    try:
        yield
    except SidecarError as error:
        from sidecar.cli.output import print_answer
        from sidecar.logs import redacted
        from sidecar.reporting.advice import advised, noted

        if kind:
            print_answer(kind, {"error": redacted(noted(error)), "exit_code": error.exit_code})
        for line in redacted(advised(error)).splitlines():
            sys.stderr.write(f"error: {line}\n")
        raise typer.Exit(error.exit_code) from error


def _path_parser(*, readable: bool) -> Callable[[str], Path]:
    def path(text: str) -> Path:
        if not text:  # as of a shell's unset variable; it would be the current directory
            raise typer.BadParameter("a path must not be empty")
        if readable and os.access(text, os.F_OK) and not os.access(text, os.R_OK):
            raise typer.BadParameter(f"path {text!r} is not readable")
        return Path(text)

    return path


def _is_path(hint: Any) -> bool:
    return hint is Path or any(map(_is_path, get_args(hint)))


def _parameters(callee: Callable[..., Any]) -> list[inspect.Parameter]:
    hints = get_type_hints(callee, include_extras=True)
    for hint in filter(_is_path, hints.values()):
        option = hint.__metadata__[0]
        option.parser = _path_parser(readable=option.readable)
    return [
        parameter.replace(
            annotation=hints[parameter.name],
            kind=inspect.Parameter.KEYWORD_ONLY,
            default=[] if parameter.name == "set_" else parameter.default,
        )
        for parameter in inspect.signature(callee).parameters.values()
    ]


def is_chosen(settings: Settings) -> Callable[[str], bool]:
    """Which topics are wanted. Internal ones are as good as others here: they are archived only where that was asked."""
    from sidecar.config.topic_filter import TopicFilter

    return TopicFilter(settings.topics.include, settings.topics.exclude, internal=True).accepts


def with_chosen(settings: Settings, include: Sequence[str] | None, exclude: Sequence[str] | None) -> Settings:
    """The settings with --topic and --exclude in the place of `topics.include` and `topics.exclude`. Raises SettingsError.

    The flags choose among what the archive has. They do not say what `run` archives: entries of `compaction.topics` for
    other topics stay valid.
    """
    from sidecar.config.topic_filter import require_pattern

    for flag, patterns in (("--topic", include), ("--exclude", exclude)):
        for pattern in patterns or ():
            try:
                require_pattern(pattern)
            except ValueError as error:
                raise SettingsError(f"{flag}: {error}") from error
    chosen: dict[str, Any] = {"include": tuple(include)} if include else {}
    if exclude:
        chosen["exclude"] = tuple(exclude)
    return settings.model_copy(update={"topics": settings.topics.model_copy(update=chosen)})


def warn_unmatched(settings: Settings, topics: Collection[str], place: str) -> None:
    """One line for each pattern that chooses none of these topics, which are all that are chosen at this place."""
    from sidecar.cli.output import remark
    from sidecar.config.topic_filter import unmatched

    for pattern in unmatched(settings.topics.include, topics):
        remark(f"warning: {pattern} (--topic or topics.include): matches no topic {place}")


def require_commits(store: ObjectStore, settings: Settings, lineages: Sequence[Lineage]) -> None:
    """Raises as `refuse_empty` unless one of the lineages has a commit; warns of patterns that choose none of them."""
    from sidecar.commits.lineages import has_commits

    if not has_commits(store, lineages):
        refuse_empty(store, settings)
    warn_unmatched(settings, {lineage.topic_partition.topic for lineage in lineages}, "of the archive")


def refuse_empty(store: ObjectStore, settings: Settings) -> NoReturn:
    """Where no chosen topic has a commit. Raises SettingsError if the archive has others, else SidecarError."""
    from sidecar.commits.lineages import find_all_lineages, no_archive
    from sidecar.runner.topic_choice import require_topic

    topics = {lineage.topic_partition.topic for lineage in find_all_lineages(store)}
    require_topic(topics, settings, internal=True)
    raise no_archive(store)
