"""Frozen dataclasses are made in a fifth of their time, and `replace` takes a third: schedules do so a thousand times each.

A frozen dataclass sets each of its fields by a call of `object.__setattr__`, because an assignment is refused. Here nothing is
refused. That no code assigns to one is for the type checker, and for all other tests.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from copy import copy
from functools import cache
from typing import Any, Final, cast

_PLACES: Final = ("sidecar", "producer_state", "tests")
_REFUSING: Final = ("__setattr__", "__delattr__")


@cache
def _plain_init(kind: Any) -> Any:
    """The `__init__` that it would have, were it not frozen."""
    fields = [(field.name, field.type, copy(field)) for field in dataclasses.fields(kind)]
    behind = {name: found for name, found in vars(kind).items() if name == "__post_init__"}
    return dataclasses.make_dataclass(kind.__name__, fields, namespace=behind).__init__


@cache
def _replacing(kind: Any, *changed: str) -> Callable[..., Any]:
    """`dataclasses.replace` for one class, of which these fields change."""
    fields = dataclasses.fields(kind)
    values = {
        field.name: field.name if field.name in changed else f"old.{field.name}" for field in fields if field.init
    }
    if hasattr(kind, "__post_init__") or len(values) < len(fields):
        body = [f"return kind({', '.join(f'{name}={value}' for name, value in values.items())})"]
    else:
        body = ["new = create(kind)", *(f"new.{name} = {value}" for name, value in values.items()), "return new"]
    found: dict[str, Any] = {"kind": kind, "create": object.__new__}
    source = f"def replacing(old, {', '.join(changed)}):\n " + "\n ".join(body)
    exec(source, found)  # noqa: S102 - names of fields, as in `dataclasses`
    return cast("Callable[..., Any]", found["replacing"])


def _replace(instance: Any, /, **changes: Any) -> Any:
    """See `dataclasses.replace`."""
    return _replacing(type(instance), *changes)(instance, *changes.values())


@contextmanager
def quick_dataclasses() -> Iterator[None]:
    """In all modules that are loaded, while this lasts."""
    modules = [module for name, module in list(sys.modules.items()) if name.split(".")[0] in _PLACES]
    found = {value for module in modules for value in vars(module).values() if isinstance(value, type)}
    with ExitStack() as stack:
        for kind in filter(dataclasses.is_dataclass, found):
            if refusing := [name for name in _REFUSING if name in vars(kind)]:
                for name in ("__init__", *refusing):
                    stack.callback(setattr, kind, name, vars(kind)[name])
                kind.__init__ = _plain_init(kind)
                for name in refusing:
                    delattr(kind, name)
        for module in modules:
            if getattr(module, "replace", None) is dataclasses.replace:
                stack.callback(setattr, module, "replace", dataclasses.replace)
                module.replace = _replace
        yield
