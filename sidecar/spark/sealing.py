"""Work for other machines, without the keys of the store in it: a worker takes them from its own environment.

What Spark is handed goes over the network, into shuffle files and perhaps into logs; the settings of a store go with it
wherever a task has to open one.
"""

from __future__ import annotations

import copyreg
import io
import os
import pickle
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

from sidecar.config.environment import FROM_FILE, read_environment, variable_of
from sidecar.store_settings import S3Settings

_SECRETS: Final = ("access_key_id", "secret_access_key", "session_token")
_VARIABLES: Final = {name: variable_of(f"store.s3.{name}") for name in _SECRETS}


T = TypeVar("T")


def sealed(value: T) -> T:
    """Goes through pickle like the value, and comes out as the value; keys of the store stay here."""
    return cast("T", _Sealed(value))


class _Sealed:
    def __init__(self, value: Any) -> None:
        self._value = value

    def __reduce__(self) -> tuple[Callable[[bytes], Any], tuple[bytes]]:
        buffer = io.BytesIO()
        _Sealer(buffer, pickle.HIGHEST_PROTOCOL).dump(self._value)
        return pickle.loads, (buffer.getvalue(),)


class _Sealer(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        return _reduced(value) if isinstance(value, S3Settings) else NotImplemented


def keep_keys_here() -> None:
    """In a worker: nothing that this process pickles has keys in it, neither answers nor what waits between steps."""
    copyreg.pickle(S3Settings, _reduced)


def secret_variables(settings: S3Settings) -> dict[str, str]:
    """The variables in which a worker of this machine finds the keys; none where the SDK finds them itself."""
    held = {variable: getattr(settings, name) for name, variable in _VARIABLES.items()}
    return {variable: secret.get_secret_value() for variable, secret in held.items() if secret is not None}


def _reduced(settings: S3Settings) -> tuple[Callable[[dict[str, Any]], S3Settings], tuple[dict[str, Any]]]:
    return _restored, (settings.model_dump(exclude=set(_SECRETS), exclude_unset=True),)


def _restored(plain: dict[str, Any]) -> S3Settings:
    """As the settings are read from the environment: the value, or by `_FILE` a file with it. Raises SettingsError."""
    names = [name for variable in _VARIABLES.values() for name in (variable, variable + FROM_FILE)]
    found, _ = read_environment({name: os.environ[name] for name in names if name in os.environ})
    return S3Settings(**plain, **{path.rpartition(".")[2]: secret for path, secret in found.items()})
