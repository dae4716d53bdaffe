"""Which topics are looked at."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from sidecar.errors import SettingsError
from sidecar.logformat.names import CLUSTER_METADATA_TOPIC, REMOTE_LOG_METADATA_TOPIC, is_internal_topic

NEVER = frozenset({CLUSTER_METADATA_TOPIC, REMOTE_LOG_METADATA_TOPIC})
"""Kafka's own bookkeeping, which no archive may hold: the KRaft log, and the metadata of tiered segments."""


@dataclass(frozen=True)
class TopicFilter:
    """A topic passes if an include pattern matches its whole name and no exclude pattern does.

    Raises SettingsError for a pattern that is no regular expression.
    """

    include: tuple[str, ...] = (".*",)
    exclude: tuple[str, ...] = ()
    _include: tuple[re.Pattern[str], ...] = field(init=False, repr=False, compare=False)
    _exclude: tuple[re.Pattern[str], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_include", tuple(_compiled("include", self.include)))
        object.__setattr__(self, "_exclude", tuple(_compiled("exclude", self.exclude)))

    def accepts(self, topic: str, *, internal_topics: bool = False) -> bool:
        """Whether the topic is looked at. Topics that begin with `__` are left out unless `internal_topics`."""
        if topic in NEVER or (is_internal_topic(topic) and not internal_topics):
            return False
        included = any(pattern.fullmatch(topic) for pattern in self._include)
        return included and not any(pattern.fullmatch(topic) for pattern in self._exclude)


def _compiled(what: str, patterns: Iterable[str]) -> Iterable[re.Pattern[str]]:
    for pattern in patterns:
        try:
            yield re.compile(pattern)
        except re.error as error:
            raise SettingsError(f"topic {what} pattern {pattern!r} is no regular expression: {error}") from error
