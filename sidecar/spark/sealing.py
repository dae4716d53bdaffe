"""Work for other machines, without the keys of the store in it: a worker takes them from its own environment.

What Spark is handed goes over the network, into shuffle files and perhaps into logs; the settings of a store go with it
wherever a task has to open one.
"""

import copyreg
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from pydantic import SecretStr

from sidecar.config.environment import read_environment, variable_of
from sidecar.store_settings import S3Settings

_KEYS: Final = ("access_key_id", "secret_access_key", "session_token")
_VARIABLES: Final = {name: variable_of(f"store.s3.{name}") for key in _KEYS for name in (key, f"{key}_file")}


def keep_keys_here() -> None:
    """From now on nothing that this process pickles has keys in it: tasks, answers, and what waits between steps."""
    copyreg.pickle(S3Settings, _reduced)


def secret_variables(settings: S3Settings) -> dict[str, str]:
    """The variables in which a worker of this machine finds the keys or their files; none where the SDK finds them itself.

    The others are empty, which counts as not set: this process may have inherited one that a flag has overridden.
    """
    given = {variable: getattr(settings, name) for name, variable in _VARIABLES.items()}
    if not any(given.values()):
        return {}
    return {variable: _text_of(value) for variable, value in given.items()}


def _text_of(value: SecretStr | Path | None) -> str:
    if value is None:
        return ""
    return value.get_secret_value() if isinstance(value, SecretStr) else str(value.absolute())


def _reduced(settings: S3Settings) -> tuple[Callable[[dict[str, Any]], S3Settings], tuple[dict[str, Any]]]:
    return _restored, (settings.model_dump(exclude=set(_VARIABLES), exclude_unset=True),)


def _restored(plain: dict[str, Any]) -> S3Settings:
    """As the settings are read from the environment. Raises SettingsError."""
    found, _ = read_environment({name: os.environ[name] for name in _VARIABLES.values() if name in os.environ})
    return S3Settings(**plain, **{path.rpartition(".")[2]: value for path, value in found.items()})
