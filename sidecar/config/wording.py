"""What was expected of a value, in words of the settings file instead of the validation library's."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any

from pydantic_core import ErrorDetails

_EXPECTED = {
    "string_type": "expected text",
    "string_sub_type": "expected text",
    "path_type": "expected a path",
    "int_type": "expected a whole number",
    "int_parsing": "expected a whole number",
    "int_parsing_size": "expected a whole number of usual size",
    "int_from_float": "expected a whole number",
    "float_type": "expected a number",
    "float_parsing": "expected a number",
    "finite_number": "expected a finite number",
    "bool_type": "expected true or false",
    "bool_parsing": "expected true or false",
    "greater_than": "expected more than {gt}",
    "greater_than_equal": "expected {ge} or more",
    "less_than": "expected less than {lt}",
    "less_than_equal": "expected {le} or less",
    "enum": "expected {expected}",
    "model_type": "expected a section: its settings on lines of their own, further in",
    "model_attributes_type": "expected a section: its settings on lines of their own, further in",
    "dict_type": "expected a section: its settings on lines of their own, further in",
}
_LISTS = {"tuple_type", "list_type"}


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
    limits = {name: _plain(limit) for name, limit in context.items()}
    return template.format(**limits) + (_found(found) if may_show else "")


def _plain(limit: object) -> object:
    return int(limit) if isinstance(limit, float) and limit.is_integer() else limit


def _found(value: object) -> str:
    if value is None:
        return ", found nothing"
    if isinstance(value, str | int | float | date):
        return f", found {value!r}"
    return f", found a {'section' if isinstance(value, Mapping) else type(value).__name__}"
