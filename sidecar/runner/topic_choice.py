"""Patterns that match nothing are probably a mistake, which would go unnoticed; but a broker need not have a selected topic."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from sidecar.config import Settings
from sidecar.config.topic_filter import NEVER
from sidecar.errors import BrokerUnavailable, SettingsError
from sidecar.logformat.files import topics_of
from sidecar.logformat.names import is_internal_topic
from sidecar.ports import BrokerFacts

TOPICS_SHOWN_MAX = 20


@dataclass(frozen=True, slots=True)
class NothingChosen:
    """Why nothing of what lies in the log dirs is archived. `is_slip`: the patterns match no topic of the whole cluster."""

    reason: str
    is_slip: bool


def require_topic(topics: Iterable[str], settings: Settings, *, internal: bool | None = None) -> None:
    """Raises SettingsError if there are topics, but `topics.include` and `exclude` leave none of them.

    `internal`: whether topics whose name begins with `__` count; default as `topics.internal` says.
    """
    if mismatch := _mismatch(topics, settings, settings.topics.internal if internal is None else internal):
        raise SettingsError(mismatch)


def nothing_chosen(settings: Settings, facts: BrokerFacts) -> NothingChosen | None:
    """Whether topics lie in the log dirs and none of them is chosen. Asks the cluster only then.

    Internal topics count only where they are wanted: a new cluster has nothing else yet.
    """

    def mismatch(topics: Iterable[str]) -> str:
        internal = settings.topics.internal
        return _mismatch((topic for topic in topics if internal or not is_internal_topic(topic)), settings, internal)

    not_here = mismatch(topics_of(settings.broker.log_dirs))
    if not not_here:
        return None
    try:
        in_cluster = facts.topics()
    except BrokerUnavailable as error:
        return NothingChosen(f"of the topics here {not_here}; the cluster's topics are unknown: {error}", False)
    if in_cluster is None:
        hint = "none if no selected topic has a replica here; otherwise correct topics.include and topics.exclude"
        return NothingChosen(f"of the topics here {not_here}; nothing is archived: {hint}", False)
    if any(map(settings.topics.filter.accepts, in_cluster)):
        return NothingChosen("this broker has no replica of a selected topic: nothing to archive", False)
    nowhere = mismatch(in_cluster) or f"{not_here}, and the cluster names no other to this user"
    hint = "correct topics.include and topics.exclude, or allow this user to describe the topics"
    return NothingChosen(f"of the cluster's topics {nowhere}; nothing is archived: {hint}", True)


def _mismatch(topics: Iterable[str], settings: Settings, internal_topics: bool) -> str:
    """Why the patterns leave none of these topics; "" if they leave some, or there are none."""
    chosen = replace(settings.topics.filter, internal=internal_topics)
    present = sorted(set(topics) - NEVER)
    if not present or any(map(chosen.accepts, present)):
        return ""
    more = f" and {len(present) - TOPICS_SHOWN_MAX} more" if len(present) > TOPICS_SHOWN_MAX else ""
    is_hidden = not internal_topics and any(is_internal_topic(topic) for topic in present)
    hint = " (those that begin with __ only with topics.internal: true)" if is_hidden else ""
    return f"no topic matches; there are: {', '.join(present[:TOPICS_SHOWN_MAX])}{more}{hint}"
