"""Puts the settings together: flag > environment > file > default; and remembers where each value came from."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic_core import ErrorDetails

from sidecar.config.environment import read_environment, variable_of
from sidecar.config.model import Settings
from sidecar.config.paths import all_sections, all_settings, did_you_mean, value_at
from sidecar.config.secrets import REDACTED, Secrets, without_credentials
from sidecar.errors import SettingsError

DEFAULT = "default"
_FILE = "_file"
_SHORTEST_SECRET_ENTRY = 8
"""Shorter values, such as `true` and `60s`, are no secrets; to blot them out would spoil other text."""
_EXPECTED = {
    **dict.fromkeys(("string_type", "string_sub_type"), "expected text"),
    "path_type": "expected a path",
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "expected a whole number"),
    "int_parsing_size": "expected a whole number with fewer digits",
    **dict.fromkeys(("float_type", "float_parsing"), "expected a number"),
    "finite_number": "expected a finite number",
    **dict.fromkeys(("bool_type", "bool_parsing"), "expected true or false"),
    "greater_than": "expected more than {gt}",
    "greater_than_equal": "expected {ge} or more",
    "less_than": "expected less than {lt}",
    "less_than_equal": "expected {le} or less",
    "enum": "expected {expected}",
    **dict.fromkeys(
        ("model_type", "model_attributes_type", "dict_type"),
        "expected a section: write its settings on lines of their own, indented",
    ),
}
_LISTS = {"tuple_type", "list_type"}


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """Settings, and the source of each value that is not a default, by path."""

    settings: Settings
    sources: Mapping[str, str]
    unused_properties: tuple[str, ...] = ()
    """Keys of the client properties that have no effect."""

    def shown(self) -> dict[str, dict[str, Any]]:
        """Every setting by its path: JSON-able `value` (secrets redacted) and `source`."""
        shown = {}
        for path, setting in all_settings().items():
            value = setting.shown(value_at(self.settings, path))
            shown[path] = {"value": _jsonable(value), "source": self.sources.get(path, DEFAULT)}
        return shown

    def secrets(self) -> Secrets:
        """The values that must never be shown, also those that stand in files, whenever they are asked for."""
        values = [(setting, value_at(self.settings, path)) for path, setting in all_settings().items()]
        given = [value.get_secret_value() for setting, value in values if setting.is_secret and value is not None]
        entries = [entry.partition("=")[2] for setting, value in values for entry in setting.secret_entries(value)]
        given += [value for value in entries if len(value) >= _SHORTEST_SECRET_ENTRY]
        connection = self.settings.broker.connection
        files = (connection.ssl_key_password_file, connection.ssl_ca_password_file, connection.sasl_password_file)
        tokens = (connection.sasl_oauth_token_file, self.settings.http.token_file)
        keys = self.settings.store.s3.key_files.values()
        return Secrets(given, [file for file in (*files, *tokens, *keys) if file is not None])


def load_settings(
    *,
    flags: Mapping[str, Any] | None = None,
    config_file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    client_properties: Path | None = None,
) -> LoadedSettings:
    """Merge and validate.

    Args:
        flags: values by path (`store.url`); None means that the flag was not given.
        config_file: YAML. None reads no file.
        environment: usually `os.environ`; see `sidecar.config.environment` for the names. None reads none.
        client_properties: a `client.properties` of Kafka's tools. Its TLS and SASL replace those of file and environment as a
            whole: parts of two identities do not mix.

    Raises:
        SettingsError: names the path and the source of every wrong value; never a secret's value.
    """
    tree: dict[str, Any] = {}
    sources: dict[str, str] = {}
    if config_file is not None:
        from sidecar.config.file import read_settings_file  # loads yaml

        from_file = _flattened(read_settings_file(config_file))
        _merge(tree, sources, from_file, dict.fromkeys(from_file, str(config_file)))
    if environment is not None:
        values, names = read_environment(environment)
        _merge(tree, sources, values, names)
    unused: tuple[str, ...] = ()
    if client_properties is not None:
        from sidecar.config.client_properties import read_client_properties

        values, unused = read_client_properties(client_properties)
        _forget_identity(tree, sources)
        _merge(tree, sources, values, dict.fromkeys(values, str(client_properties)))
    given = {path: value for path, value in (flags or {}).items() if value is not None}
    _merge(tree, sources, given, dict.fromkeys(given, "flag"))
    try:
        settings = Settings.model_validate(tree)
    except ValidationError as error:
        lines = dict.fromkeys(_problem(details, sources) for details in error.errors(include_url=False))
        raise SettingsError("\n".join(lines)) from error
    known = {path: source for path, source in sources.items() if path in all_settings()}
    return LoadedSettings(settings, known, unused)


def _forget_identity(tree: dict[str, Any], sources: dict[str, str]) -> None:
    prefixes = tuple(f"broker.connection.{name}_" for name in ("security", "ssl", "sasl"))
    for path in [path for path in sources if path.startswith(prefixes)]:
        del sources[path], tree["broker"]["connection"][path.rpartition(".")[2]]


def _flattened(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, value in tree.items():
        path = f"{prefix}{name}"
        if "." in str(name):
            raise SettingsError(f"{path}: write sections as mappings, not with dots")
        if path in all_sections() and value is None:
            continue  # a heading under which everything is commented out
        if isinstance(value, Mapping) and value and path not in all_settings():
            values.update(_flattened(value, f"{path}."))
        else:
            values[path] = value
    return values


def _merge(tree: dict[str, Any], sources: dict[str, str], values: Mapping[str, Any], names: Mapping[str, str]) -> None:
    for path, value in values.items():
        *sections, name = path.split(".")
        place = tree
        for section in sections:
            inner = place.setdefault(section, {})
            if not isinstance(inner, dict):
                inner = place[section] = {}
            place = inner
        place[name] = value
        sources[path] = names[path]
        # A secret and a file with it are one setting in two forms: that of the stronger source holds.
        other = name.removesuffix(_FILE) if name.endswith(_FILE) else name + _FILE
        other_path = ".".join([*sections, other])
        if other_path in sources and other_path not in values:
            del sources[other_path], place[other]


def _problem(details: ErrorDetails, sources: Mapping[str, str]) -> str:
    path = _path(details["loc"])
    source = sources.get(path)
    within = _within(details["loc"], path)
    where = f"{path}{within} ({source})" if source else f"{path}{within}"
    if details["type"] == "extra_forbidden":
        return f"{where}: unknown setting{did_you_mean(path, within.rpartition('.')[2])}"
    if details["type"] == "missing" and within:
        return f"{where}: not set, and there is no default"
    if details["type"] == "missing":
        wanted = [name for name in all_settings() if name == path or name.startswith(f"{path}.")]
        needed = [name for name in wanted if all_settings()[name].field.is_required()]
        ways = f"in the settings file, as environment {variable_of(needed[0])}, or by an option"
        return f"{' and '.join(needed)}: not set, and there is no default; set it {ways}"
    setting = all_settings().get(path)
    example, may_show = ("first, second", False) if setting is None else (setting.example, not setting.may_hold_secrets)
    message = expectation(details, example=example, may_show=may_show)
    return f"{where}: {message}" if where else message


def _path(location: tuple[int | str, ...]) -> str:
    """Pydantic's location without list positions and names of union members."""
    path = ""
    for element in location:
        longer = f"{path}.{element}" if path else str(element)
        if path in all_settings():
            break
        path = longer
    return path


def _within(location: tuple[int | str, ...], path: str) -> str:
    """Where in a list of entries, such as `[0].strategy`; "" for everything else."""
    number, *names = (*location[path.count(".") + 1 :], "")
    if path not in all_settings() or not isinstance(number, int) or not names[:-1]:
        return ""
    return f"[{number}].{names[0]}"


def _jsonable(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_jsonable(element) for element in value]
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_none=True)
    if isinstance(value, SecretStr):
        return REDACTED
    return without_credentials(str(value)) if isinstance(value, str | Path) else value


def expectation(details: ErrorDetails, *, example: str, may_show: bool) -> str:
    """What was expected, and what was found instead.

    Args:
        example: an entry, should it be a list.
        may_show: the value is no secret.
    """
    kind, found = details["type"], details["input"]
    if kind in _LISTS:
        example = found if may_show and isinstance(found, str) and found else example
        return f"expected a list, such as [{example}]{_found(found) if may_show else ''}"
    template = _EXPECTED.get(kind)
    if template is None:
        return details["msg"].removeprefix("Value error, ")
    context: Mapping[str, Any] = details.get("ctx") or {}
    limits = {
        name: int(limit) if isinstance(limit, float) and limit.is_integer() else limit
        for name, limit in context.items()
    }
    return template.format(**limits) + (_found(found) if may_show else "")


def _found(value: object) -> str:
    if value is None:
        return ", found nothing"
    if isinstance(value, str | int | float | date):
        return f", found {value!r}"
    return f", found a {'section' if isinstance(value, Mapping) else type(value).__name__}"
