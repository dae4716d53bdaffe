"""The reference pages in `docs/reference/`, written from the code they describe: `python -m tests.reference_pages`."""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any, get_args, get_origin

import typer
from pydantic import BaseModel, SecretStr
from pydantic_core import PydanticUndefined

from sidecar import errors
from sidecar.cli.app import app
from sidecar.cli.options import OPTION_NAMES
from sidecar.compactor.topic_counts import RawReason
from sidecar.config.environment import variable_of
from sidecar.config.meanings import meanings
from sidecar.config.model import Settings
from sidecar.config.paths import Setting, alternatives, section_of, walk
from sidecar.metrics import Metrics
from sidecar.metrics.registry import Stage
from sidecar.partition.copy_task import Phase
from sidecar.partition.status import PartitionCondition
from sidecar.reporting.health_reporter import ALL_CONDITIONS
from tests.event_page import events_page
from tests.partition.steps import LEADS_TO, MEANINGS

DOCS = Path(__file__).parents[1] / "docs"
NOTE = "<!-- Written by `python -m tests.reference_pages`; a test compares. Edit the code, not this page. -->"
_TYPES: dict[Any, str] = {
    bool: "yes or no",
    int: "integer",
    float: "number",
    str: "text",
    Path: "path",
    SecretStr: "secret",
}
_LIMITS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


DIAGRAM_BEGINS = (
    "<!-- From here on written by `python -m tests.reference_pages` "
    "from `sidecar.partition.copy_task`; a test compares. -->"
)
DIAGRAM_ENDS = "<!-- Up to here. -->"


def with_diagram(page: str) -> str:
    """`architecture.md` with the states and transitions of a copy task in their place."""
    before, _, rest = page.partition(DIAGRAM_BEGINS)
    _, _, after = rest.partition(DIAGRAM_ENDS)
    return f"{before}{DIAGRAM_BEGINS}\n\n{copy_task_diagram()}\n{DIAGRAM_ENDS}{after}"


def copy_task_diagram() -> str:
    """The states of a copy task, and which event leads from one to another."""
    events: dict[tuple[str, str], list[str]] = {}
    for (before, name), phases in LEADS_TO.items():
        for phase in phases:
            if phase is not before:
                events.setdefault((before, phase), []).append(name)
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {Phase.OPENING}"]
    lines += [f"    {before} --> {after}: {', '.join(names)}" for (before, after), names in events.items()]
    lines += [f"    {Phase.ENDED} --> [*]", "```", "", "| State | Meaning |", "|---|---|"]
    lines += [f"| {phase} | {meaning} |" for phase, meaning in MEANINGS.items()]
    return "\n".join(lines) + "\n"


def settings_page() -> str:
    """Every setting: path, type and limits, default, meaning."""
    lines = ["# Settings", "", NOTE, "", _one_line(Settings.__doc__), "", _SETTINGS_INTRODUCTION]
    for name, field in Settings.model_fields.items():
        section = section_of(field)
        if section is None:
            continue
        lines += ["", f"## {name}", "", _one_line(section.__doc__), ""]
        lines += ["| Setting | Type | Default | Reload | Meaning |", "|---|---|---|---|---|"]
        settings = list(walk(section, f"{name}."))
        lines += [_setting_row(setting, with_reload=True) for setting in settings]
        for setting in settings:
            lines += _entries(setting)
    return "\n".join(lines) + "\n"


_SETTINGS_INTRODUCTION = f"""\
**The file** is YAML, one mapping per section. Give it by `--config` or `TIERED_SIDECAR_CONFIG`.

**Variables.** The variable of a setting is its path in capitals, with two underscores between the elements:
`{variable_of("store.s3.region")}`. A list in a variable is JSON, or its elements with commas between. `null` unsets.
Each secret also has a setting for a file that holds it, such as `store.s3.secret_access_key_file`.

**Options.** `--set path=value` sets anything but secrets. `tiered-sidecar config show` shows each value and its source.
`config schema` prints the JSON Schema. Unknown names are refused everywhere.

**Reload.** `run` reads the file again when it changes (in Kubernetes: when the ConfigMap does), and on SIGHUP. Environment and
options stay as at the start.

| Settings | Applied |
|---|---|
| `store.bandwidth_bytes_per_s`, `store.read_bytes_per_s`, `topics.policies` and `log` | At once |
| All others that are marked `yes` | Before the next check of the disks |
| All others | After a restart |

* Until that check, `/status` has `pending` under `config`, and `tiered_sidecar_config_pending` is 1.
* Copy tasks in progress keep the settings that they began with.
* A change of `compaction` or `gc` cuts off a running compaction, which then begins again. The archive stays whole.
* A file that changes any other setting, is wrong, or needs more memory than the container has, is refused as a whole. The old
  settings stay, the log says which ones need a restart, and `tiered_sidecar_config_stale` is 1.
* `/status` shows the current settings under `config`. `config show --json` prints the fingerprint that the file would have now."""


def metrics_page() -> str:
    """Every metric: name, type, labels, meaning."""
    lines = ["# Metrics", "", NOTE, "", "Served by `run` at `/metrics`. No series has a topic or partition label.", ""]
    lines += ["| Metric | Type | Labels | Meaning |", "|---|---|---|---|"]
    for name, kind, labels, text in declared_metrics(Metrics()):
        shown = ", ".join(f"`{label}`" for label in labels) or "-"
        lines.append(f"| `{name}` | {kind} | {shown} | {_cell(text)} |")
    lines += ["", "## Label values", "", *_label_values()]
    lines += ["", "The Prometheus client library adds metrics of the process: `process_*` and `python_info`."]
    return "\n".join(lines) + "\n"


def declared_metrics(metrics: Metrics) -> Iterator[tuple[str, str, tuple[str, ...], str]]:
    """Name, type, labels and meaning of the metrics of ours, in the order of their declaration, as the client library has them."""
    for found in metrics.registry._collector_to_names:
        if hasattr(found, "_labelnames"):
            kind = type(found).__name__.lower()
            name = f"{found._name}_total" if kind == "counter" else found._name
            yield name, kind, found._labelnames, found._documentation


def _label_values() -> list[str]:
    """Tables of the values that the code can give. Fails where a value has no text."""
    assert _STATES.keys() == set(PartitionCondition)
    assert _CONDITIONS.keys() == set(ALL_CONDITIONS)
    lines = [
        "`tiered_sidecar_partitions` counts what a check found to do. `/status` and the status page show the worst"
    ]
    lines += ["that is true of a partition; there, `at_risk` comes before all others.", ""]
    lines += ["| `state` | Meaning | State in `/status` |", "|---|---|---|"]
    lines += [f"| `{state}` | {meaning} | {shown} |" for state, (meaning, shown) in _STATES.items()]
    lines += ["", "| `condition` of `tiered_sidecar_not_ready` | 1 while |", "|---|---|"]
    lines += [f"| `{condition}` | {_CONDITIONS[condition]} |" for condition in ALL_CONDITIONS]
    lines += ["", "| `reason` of `tiered_sidecar_compaction_uncompacted_segments_total` | Meaning |", "|---|---|"]
    lines += [f"| `{reason}` | {reason.what[0].upper()}{reason.what[1:]} |" for reason in RawReason]
    stages = " and ".join(f"`{stage}`" for stage in Stage)
    lines += ["", "| Label | Values |", "|---|---|"]
    lines.append(f"| `stage` | {stages}: both objects of the segment are in the store; a commit names them |")
    lines.append(
        "| `kind` of `tiered_sidecar_errors_total` | The class of the error; [Exit codes](exit-codes.md) lists them |"
    )
    lines.append("| `kind` of `tiered_sidecar_compaction_invalid_records_total` | `unkeyed`, `malformed_version` |")
    return lines


_STATES: dict[PartitionCondition, tuple[str, str]] = {
    PartitionCondition.READY: ("Segments can be archived now", "`uploading` or `waiting`"),
    PartitionCondition.WAITING: ("Segments have rolled, and wait for the reason in `/status`", "`waiting`"),
    PartitionCondition.IDLE: ("Nothing to do", "`archived`, or `nothing_rolled` if nothing was archived yet"),
    PartitionCondition.NOT_LED: (
        "Another broker is the leader, or none is, of which the status page warns",
        "`not_led`",
    ),
    PartitionCondition.STOPPED: ("An error stops the partition", "`stopped`, or `gap` if offsets are missing"),
}
_CONDITIONS = {
    "store": "the store does not answer, refuses, or is not fit for an archive",
    "first_check": "the first check of all partitions is not over",
    "log_dirs": "a log directory cannot be read, or is not formatted",
    "broker": "the broker does not answer, or refuses the connection",
    "leadership": "nothing says which partitions this broker leads",
    "topics": "the patterns match no topic",
    "state_dir": "the journal in `run.state_dir` cannot be read or written, or was deleted",
    "start": "the last start failed (`--retry-start`)",
}

_EXIT_CODES = {
    0: ("Success", ""),
    1: (
        (
            "Failure, for example the broker does not answer, or nothing is committed in the archive. `cannot write the output`: "
            "see the message; the work may be done"
        ),
        "Read the message",
    ),
    2: ("A wrong option, argument or setting", "Correct the command or the settings"),
    3: (
        "Partial: some partitions stopped or are incomplete. The others are done. Or a local disk is full: then possibly none is",
        "The report or the error names each one and the reason",
    ),
    4: (
        "Verification mismatch: stored data is not what was committed, or a snapshot would mislead a broker",
        "Do not rely on the named partition; see the report",
    ),
    5: ("Fenced: a writer with a higher leader epoch owns the partition", "None: the other sidecar continues"),
    6: (
        "The store does not answer, refuses, or is not fit for an archive. A missing directory counts as such a store",
        "Check the store with `doctor --area store`",
    ),
    130: (
        "Interrupted by Ctrl-C. A second Ctrl-C or SIGTERM ends any command at once. `run` ends with 0 if it was drained",
        "Run it again",
    ),
    141: ("The program that read the output ended", "None"),
    143: ("Ended by SIGTERM; `run`: before it was drained", "None: the next start continues"),
}
"""What each code means, and what to do."""

_JSON_ERRORS = (
    "With `--json`, a command that fails as a whole prints one object on stdout, after whatever it had printed before, and the "
    "error on stderr:\n\n"
    "```json\n"
    '{"kind": "snapshots_check", "version": 1, "error": "...", "exit_code": 2}\n'
    "```\n\n"
    "`kind` is the name of the command. A report that has its own exit code, such as that of `backfill`, is printed instead."
)

_MISTYPED_ARCHIVE = (
    "`status`, `verify`, `gc`, `compact --archive`, `restore`, `snapshots check` and `snapshots rebuild` end with the same code, "
    "also with `--dry-run`. They write nothing:\n\n"
    "| `--archive` | Code | Message |\n|---|---|---|\n"
    "| Nothing is committed below the bucket's prefix, or in the directory | 1 | `no archive at …: nothing is committed there` |\n"
    "| The directory or the bucket does not exist | 6 | `there is no such directory`, or the store's own words |\n"
    "| Not a URL, such as `s3//bucket` or `s3:bucket` | 2 | `lacks the colon of a URL`, `lacks the two slashes of a URL` |\n"
    "| The archive has other topics only | 2 | The topics that it has |\n\n"
    "A new archive is empty until the first commit. A scheduled `gc` or `compact` fails until then."
)


def exit_codes_page() -> str:
    """Every exit code, and the errors that end with it."""
    named = (found for found in vars(errors).values() if isinstance(found, type))
    raised = sorted(
        {found for found in named if issubclass(found, errors.SidecarError)}, key=lambda found: found.__name__
    )
    lines = ["# Exit codes", "", NOTE, "", "All commands use the same codes. A command page may add details.", ""]
    lines += ["| Code | Meaning | What to do | Errors |", "|---|---|---|---|"]
    for code, (meaning, action) in _EXIT_CODES.items():
        names = ", ".join(f"`{found.__name__}`" for found in raised if found.exit_code == code)
        lines.append(f"| {code} | {meaning} | {action or '-'} | {names or '-'} |")
    assert {found.exit_code for found in raised} <= _EXIT_CODES.keys()
    lines += ["", "## Errors as JSON", "", _JSON_ERRORS]
    lines += ["", "## A mistyped archive", "", _MISTYPED_ARCHIVE]
    return "\n".join(lines) + "\n"


def commands_page() -> str:
    """Every command: usage, arguments, options."""
    root = typer.main.get_command(app)
    lines = ["# Commands", "", NOTE, "", *(line for line in str(root.help).splitlines())]
    lines += ["", "## Options of every command", "", "Before or after the command's name.", ""]
    lines += _options(parameter for parameter in root.params if parameter.name in OPTION_NAMES)
    for name, command in commands():
        lines += ["", f"## {name}", "", _one_line(command.help), ""]
        own = [parameter for parameter in command.params if parameter.name not in {*OPTION_NAMES, "help"}]
        arguments = [parameter for parameter in own if parameter.param_type_name == "argument"]
        usage = " ".join(["tiered-sidecar", name, "[OPTIONS]", *map(_argument, arguments)])
        lines += [f"    {usage}", "", *_options(iter(own))]
    return "\n".join(line.rstrip() for line in lines).rstrip() + "\n"


def commands() -> Iterator[tuple[str, Any]]:
    """Every command with its full name."""

    def walk_group(group: Any, prefix: str) -> Iterator[tuple[str, Any]]:
        for name, command in group.commands.items():
            if hasattr(command, "commands"):
                yield from walk_group(command, f"{prefix}{name} ")
            else:
                yield f"{prefix}{name}", command

    return walk_group(typer.main.get_command(app), "")


def _options(parameters: Iterator[Any]) -> list[str]:
    rows = []
    for parameter in parameters:
        is_argument = parameter.param_type_name == "argument"
        names = [str(parameter.metavar)] if is_argument else [*parameter.opts, *parameter.secondary_opts]
        value = "" if is_argument or parameter.is_flag else f" {_value_name(parameter)}"
        rows.append(f"| {_cell(', '.join(f'`{name}{value}`' for name in names))} | {_cell(parameter.help or '')} |")
    return ["| Option | Meaning |", "|---|---|", *rows] if rows else []


def _argument(parameter: Any) -> str:
    return str(parameter.metavar) if parameter.required else f"[{parameter.metavar}]"


def _value_name(parameter: Any) -> str:
    """What stands for the value of an option: its metavar, or the values there are."""
    if parameter.metavar:
        return str(parameter.metavar)
    kind = parameter.type_descriptor.annotation
    choices = next((one for one in (kind, *get_args(kind)) if isinstance(one, type) and issubclass(one, StrEnum)), None)
    return "VALUE" if choices is None else "|".join(choices)


def _entries(setting: Setting) -> list[str]:
    """What an entry of a list of sections may hold; nothing for any other setting."""
    elements = [element for kind in alternatives(setting.field.annotation) for element in get_args(kind)]
    entry = next((kind for kind in elements if isinstance(kind, type) and issubclass(kind, BaseModel)), None)
    if entry is None:
        return []
    lines = ["", f"An entry of `{setting.path}`: {_one_line(entry.__doc__)}", ""]
    lines += ["| Setting | Type | Default | Meaning |", "|---|---|---|---|"]
    return [*lines, *(_setting_row(member) for member in walk(entry))]


def _setting_row(setting: Setting, *, with_reload: bool = False) -> str:
    default = setting.field.get_default()
    shown = "required" if default is PydanticUndefined else f"`{json.dumps(default, default=str, ensure_ascii=False)}`"
    meaning = _cell(meanings(setting.section)[setting.path.rpartition(".")[2]])
    reload = f" {'yes' if setting.is_reloadable else 'no'} |" if with_reload else ""
    return f"| `{setting.path}` | {_cell(_type_of(setting))} | {_cell(shown)} |{reload} {meaning} |"


def _type_of(setting: Setting) -> str:
    kinds = [kind for kind in alternatives(setting.field.annotation) if kind is not types.NoneType]
    limits = [*setting.field.metadata]
    for kind in kinds:
        limits += [
            piece for extra in getattr(kind, "__metadata__", ()) for piece in getattr(extra, "metadata", [extra])
        ]
    words = " or ".join(_type_words(kind) for kind in kinds)
    bounds = [
        f"{sign} {getattr(limit, name)}" for limit in limits for name, sign in _LIMITS.items() if hasattr(limit, name)
    ]
    return f"{words}, {', '.join(bounds)}" if bounds else words


def _type_words(kind: Any) -> str:
    if hasattr(kind, "__metadata__"):
        kind = kind.__origin__
    if get_origin(kind) is tuple:
        element = get_args(kind)[0]
        is_section = isinstance(element, type) and issubclass(element, BaseModel)
        return "list of entries, see below" if is_section else f"list of {_type_words(element)}s"
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return ", ".join(f"`{member}`" for member in kind)
    return _TYPES.get(kind, str(kind))


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split())


def _cell(text: str) -> str:
    return _one_line(text).replace("|", "\\|")


PAGES: dict[str, Callable[[], str]] = {
    "settings.md": settings_page,
    "metrics.md": metrics_page,
    "cli.md": commands_page,
    "events.md": lambda: events_page(NOTE),
    "exit-codes.md": exit_codes_page,
}
"""What writes a page as a whole, by its file name."""


if __name__ == "__main__":
    for page_name, content in PAGES.items():
        (DOCS / "reference" / page_name).write_text(content(), encoding="utf-8")
    architecture = DOCS / "explanation" / "architecture.md"
    architecture.write_text(with_diagram(architecture.read_text(encoding="utf-8")), encoding="utf-8")
