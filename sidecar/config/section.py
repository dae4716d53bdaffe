"""What all sections of the settings have in common."""

from __future__ import annotations

import re

from pydantic import BaseModel, ConfigDict

MIB = 1024 * 1024


class Section(BaseModel):
    """Base of the sections: unknown keys are refused, values do not change after the start."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)


def require_pattern(pattern: str) -> str:
    """The pattern. Raises ValueError if it is no regular expression."""
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from error
    return pattern
