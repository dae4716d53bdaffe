"""Settings from environment variables.

`TIERED_SIDECAR__STORE__S3__REGION` sets `store.s3.region`. A list is JSON, or its elements with commas between. `null` is
no value; an empty variable counts as not set.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from sidecar.config.paths import all_sections, all_settings, did_you_mean
from sidecar.errors import SettingsError

PREFIX = "TIERED_SIDECAR__"
DELIMITER = "__"
OURS = "TIERED_SIDECAR_"
OTHERS = {"TIERED_SIDECAR_CONFIG", "TIERED_SIDECAR_SPARK_PRELOAD"}
"""The settings file; and what our own processes tell each other."""
_SERVICE_LINK = re.compile(
    r"TIERED_SIDECAR_(?:.*_)?(?:SERVICE_(?:HOST|PORT(?:_.+)?)|PORT(?:_[0-9]+_(?:TCP|UDP|SCTP)(?:_.+)?)?)"
)
NULL = "null"
_PLACES = "use the environment or a file"


def variable_of(path: str) -> str:
    return PREFIX + path.upper().replace(".", DELIMITER)


def read_environment(environment: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Values by path, and by path the words that name the source.

    Raises SettingsError for a variable with our prefix that sets nothing.
    """
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for name, text in environment.items():
        if not text or not name.upper().startswith(OURS):
            continue
        if not name.upper().startswith(PREFIX):
            _require_known(name)
            continue
        path = _path_of(name)
        if path in sources:
            raise SettingsError(f"{path} is set twice: {sources[path]}, environment {name}")
        sources[path] = f"environment {name}"
        values[path] = _decoded(path, text, sources[path])
    return values, sources


def _require_known(name: str) -> None:
    """Variables that begin as ours do and are not settings. Kubernetes sets some for every Service of such a name."""
    if name.upper() in OTHERS or _SERVICE_LINK.fullmatch(name.upper()):
        return
    path = name[len(OURS) :].lower()
    meant = [known for known in all_settings() if known.replace(".", "_") == path]
    hint = f"; did you mean {variable_of(meant[0])}?" if meant else f"; settings begin with {PREFIX}"
    raise SettingsError(f"environment {name}: no such variable{hint}")


def read_assignments(assignments: Iterable[str]) -> dict[str, Any]:
    """Values by path from `path=value` texts, decoded as those of variables are. The last one of a path holds.

    Raises SettingsError for unknown paths, and for secrets: everybody on the machine can read arguments.
    """
    values: dict[str, Any] = {}
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        setting = all_settings().get(path)
        if not equals or setting is None:
            hint = "" if setting is not None else did_you_mean(path)
            raise SettingsError(f"--set {path}: expected PATH=VALUE with the path of a setting{hint}")
        if setting.is_secret:
            raise SettingsError(f"--set {path}: a secret does not belong in arguments; {_PLACES}")
        values[path] = _decoded(path, text, f"--set {path}")
        if secret := setting.secret_entries(values[path]):
            name = secret[0].partition("=")[0]
            raise SettingsError(f"--set {path}: {name} is a secret, which does not belong in arguments; {_PLACES}")
    return values


def _decoded(path: str, text: str, source: str) -> Any:
    if text == NULL:
        return None
    if not text or not all_settings()[path].is_list:
        return text  # Empty is no list of one empty element: as a log directory, that would be the working directory.
    if not text.lstrip().startswith(("[", "{")):
        return [element.strip() for element in text.split(",")]
    try:
        return json.loads(text)
    except ValueError as error:
        raise SettingsError(f'{source}: expected a JSON list, such as ["a", "b"]') from error


def _path_of(name: str) -> str:
    path = name[len(PREFIX) :].lower().replace(DELIMITER, ".")
    if path in all_settings():
        return path
    if path in all_sections():
        raise SettingsError(f"environment {name}: {path} is a section; set its members one by one")
    raise SettingsError(f"{path} (environment {name}): unknown setting{did_you_mean(path)}")
