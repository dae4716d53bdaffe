"""Settings by their path (`store.s3.region`): which exist, what type they have, and which one a misspelt one may mean."""

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from sidecar.config.model import Settings
from sidecar.config.secrets import REDACTED, SecretEntries
from sidecar.store_settings import ReloadMark


@dataclass(frozen=True, slots=True)
class Setting:
    """One leaf of the model. `section`: which it is defined in."""

    path: str
    field: FieldInfo
    section: type[BaseModel]

    @property
    def is_secret(self) -> bool:
        return any(kind is SecretStr for kind in alternatives(self.field.annotation))

    @property
    def may_hold_secrets(self) -> bool:
        """Whether all or some of its value is never shown."""
        return self.is_secret or self._entries is not None

    @property
    def _entries(self) -> SecretEntries | None:
        return next((mark for mark in self.field.metadata if isinstance(mark, SecretEntries)), None)

    def shown(self, value: Any) -> Any:
        if value is not None and self.is_secret:
            return REDACTED
        if secret := self.secret_entries(value):
            return tuple(f"{entry.partition('=')[0]}={REDACTED}" if entry in secret else entry for entry in value)
        return value

    def secret_entries(self, value: Any) -> tuple[str, ...]:
        """Those `name=value` texts of a list that hold a secret."""
        mark = self._entries
        if mark is None or not isinstance(value, list | tuple):
            return ()
        return tuple(entry for entry in value if isinstance(entry, str) and mark.is_secret(entry))

    @property
    def example(self) -> str:
        """An entry of a list, for messages."""
        if self._entries is not None:
            return self._entries.example
        return "orders" if self.path.startswith("topics.") else "first, second"

    @property
    def is_reloadable(self) -> bool:
        return any(isinstance(mark, ReloadMark) for mark in self.field.metadata)

    @property
    def is_list(self) -> bool:
        return any(get_origin(kind) in {tuple, list} for kind in alternatives(self.field.annotation))


def value_at(settings: Settings, path: str) -> Any:
    return attrgetter(path)(settings)


def alternatives(annotation: Any) -> tuple[Any, ...]:
    """The members of a union, or the type alone."""
    return get_args(annotation) if get_origin(annotation) in {Union, UnionType} else (annotation,)


def walk(model: type[BaseModel], prefix: str = "") -> Iterator[Setting]:
    for name, field in model.model_fields.items():
        section = section_of(field)
        if section is not None:
            yield from walk(section, f"{prefix}{name}.")
        else:
            yield Setting(f"{prefix}{name}", field, model)


def section_of(field: FieldInfo) -> type[BaseModel] | None:
    """The section behind a field, None for a leaf."""
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


@cache
def all_settings() -> dict[str, Setting]:
    return {setting.path: setting for setting in walk(Settings)}


@cache
def all_sections() -> frozenset[str]:
    paths = [path.split(".")[:-1] for path in all_settings()]
    return frozenset(".".join(path[:depth]) for path in paths for depth in range(1, len(path) + 1))


def did_you_mean(path: str, entry_name: str = "") -> str:
    """`; did you mean …?` for an unknown path, "" if nothing comes near. A right name in a wrong section counts as near.

    `entry_name`: the unknown name, if it is in an entry of the list at `path`.
    """
    if entry_name:
        kinds = [kind for each in alternatives(all_settings()[path].field.annotation) for kind in get_args(each)]
        known = [name for kind in kinds for name in getattr(kind, "model_fields", ())]
        near = difflib.get_close_matches(entry_name, known, n=1, cutoff=0.75)
        return f"; did you mean {near[0]}?" if near else ""
    known = [*all_settings(), *all_sections()]
    normal = path.replace("-", "_").lower()
    same_name = [candidate for candidate in known if candidate.rpartition(".")[2] == normal.rpartition(".")[2]]
    near = same_name or difflib.get_close_matches(normal, known, n=1, cutoff=0.75)
    if not near:
        names = {candidate.rpartition(".")[2]: candidate for candidate in reversed(known)}
        near = [names[name] for name in difflib.get_close_matches(normal.rpartition(".")[2], names, n=1, cutoff=0.8)]
    return f"; did you mean {' or '.join(near[:3])}?" if near else ""
