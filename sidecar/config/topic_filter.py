"""Which topics are meant: patterns that match whole names, without Kafka's own bookkeeping."""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator

from sidecar.errors import SettingsError
from sidecar.logformat.names import CLUSTER_METADATA_TOPIC, REMOTE_LOG_METADATA_TOPIC, is_internal_topic

NEVER = frozenset({CLUSTER_METADATA_TOPIC, REMOTE_LOG_METADATA_TOPIC})
"""Kafka's own bookkeeping, which no archive may hold: the KRaft log, and the metadata of tiered segments."""


def require_pattern(pattern: str) -> str:
    """The pattern. Raises ValueError if it is not a regular expression."""
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error
    return pattern


def unmatched(patterns: Iterable[str], topics: Collection[str]) -> list[str]:
    """Patterns that match none of these topics: mistyped, or about topics that are elsewhere."""
    return [pattern for pattern in patterns if not any(re.fullmatch(pattern, topic) for topic in topics)]


Pattern = Annotated[str, AfterValidator(require_pattern)]


@dataclass(frozen=True, slots=True)
class TopicFilter:
    """A topic passes if an include pattern matches its whole name and no exclude pattern does.

    Topics that begin with `__` pass only with `internal`, those of `NEVER` never. Raises SettingsError for a wrong pattern.
    """

    include: tuple[str, ...] = (".*",)
    exclude: tuple[str, ...] = ()
    internal: bool = False

    def __post_init__(self) -> None:
        for what, patterns in (("include", self.include), ("exclude", self.exclude)):
            for pattern in patterns:
                try:
                    require_pattern(pattern)
                except ValueError as error:
                    raise SettingsError(f"topic {what} pattern {error}") from error

    def accepts(self, topic: str) -> bool:
        if topic in NEVER or (is_internal_topic(topic) and not self.internal):
            return False
        included = any(re.fullmatch(pattern, topic) for pattern in self.include)
        return included and not any(re.fullmatch(pattern, topic) for pattern in self.exclude)
