"""What each setting means: the docstring below it, read from the source on demand.

pydantic could read them too (`use_attribute_docstrings`), but at each start of each command, of which that takes up to a tenth.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from pydantic import BaseModel

from sidecar.config.model import Settings
from sidecar.config.paths import Setting, alternatives


def settings_schema(section: type[BaseModel] = Settings) -> dict[str, Any]:
    """The JSON Schema of a section, with the meaning of each setting as its description."""
    schema = section.model_json_schema()
    definitions = {**schema.get("$defs", {}), section.__name__: schema}
    for each in _sections(section):
        properties = definitions[each.__name__]["properties"]
        for name, meaning in meanings(each).items():
            properties[name] = dict(sorted({**properties[name], "description": meaning}.items()))
    return schema


def meaning_of(setting: Setting) -> str:
    """The docstring of one setting."""
    return meanings(setting.section)[setting.path.rpartition(".")[2]]


def meanings(section: type[BaseModel]) -> dict[str, str]:
    """By setting, those of the sections that it extends among them."""
    found: dict[str, str] = {}
    for base in reversed(section.__mro__):
        if issubclass(base, BaseModel) and base.__module__.startswith("sidecar."):
            (definition,) = ast.parse(inspect.getsource(base)).body
            for setting, below in pairwise(definition.body if isinstance(definition, ast.ClassDef) else ()):
                if isinstance(setting, ast.AnnAssign) and isinstance(below, ast.Expr):
                    found[ast.unparse(setting.target)] = inspect.cleandoc(ast.literal_eval(below.value))
    return found


def _sections(section: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """This one, and all within."""
    yield section
    for field in section.model_fields.values():
        for kind in alternatives(field.annotation):
            yield from (
                inner
                for part in (kind, *getattr(kind, "__args__", ()))
                if isinstance(part, type) and issubclass(part, BaseModel)
                for inner in _sections(part)
            )
