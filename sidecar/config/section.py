"""What all sections of the settings have in common."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, field_validator

MIB = 1024 * 1024


REDACTED = "********"

_URL_CREDENTIALS = re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)")


def without_credentials(text: str) -> str:
    """The text with user and password of each URL in it redacted."""
    return _URL_CREDENTIALS.sub(REDACTED, text)


@dataclass(frozen=True, slots=True)
class SecretEntries:
    """Mark of a list of `name=value` texts, some of which hold a secret. `example`: an entry, for messages."""

    is_secret: Callable[[str], bool]
    example: str


class Section(BaseModel):
    """Base of the sections: unknown keys are refused, values do not change after the start."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_text_has_a_nul(cls, value: Any) -> Any:
        texts = value if isinstance(value, list | tuple) else (value,)
        if any(isinstance(text, str) and "\0" in text for text in texts):
            raise ValueError("it contains a NUL character, which no file name and no setting may have")
        return value


def require_pattern(pattern: str) -> str:
    """The pattern. Raises ValueError if it is not a regular expression."""
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error
    return pattern


Pattern = Annotated[str, AfterValidator(require_pattern)]
