"""Patterns that match nothing are a slip of the pen, which nobody would notice; but a broker need not hold a chosen topic."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sidecar.config import Settings
from sidecar.discovery.scan import NEVER, topics_of
from sidecar.errors import BrokerUnavailable, SettingsError
from sidecar.logformat.names import is_internal_topic
from sidecar.ports import BrokerFacts
from sidecar.runner.assembly import require_topic


@dataclass(frozen=True, slots=True)
class NothingChosen:
    """Why nothing of what lies in the log dirs is archived. `is_slip`: the patterns match no topic of the whole cluster."""

    reason: str
    is_slip: bool


def nothing_chosen(settings: Settings, facts: BrokerFacts) -> NothingChosen | None:
    """Whether topics lie in the log dirs and none of them is chosen. Asks the cluster only then.

    Internal topics count only where they are wanted: a new cluster has nothing else yet.
    """
    not_here = _mismatch(topics_of(settings.broker.log_dirs), settings)
    if not not_here:
        return None
    try:
        in_cluster = facts.topics()
    except BrokerUnavailable as error:
        return NothingChosen(f"of what lies here {not_here}; the cluster's topics are not known: {error}", False)
    if in_cluster is None:
        hint = "none if no selected topic has a replica here; otherwise correct topics.include and topics.exclude"
        return NothingChosen(f"of what lies here {not_here}; nothing is archived: {hint}", False)
    if any(settings.topics.accepts(topic) for topic in in_cluster):
        return NothingChosen("this broker has no replica of a selected topic: nothing to archive", False)
    nowhere = _mismatch(in_cluster, settings) or f"{not_here}, and the cluster names no other to this user"
    hint = "correct topics.include and topics.exclude, or allow this user to describe the topics"
    return NothingChosen(f"of the cluster's topics {nowhere}; nothing is archived: {hint}", True)


def _mismatch(topics: Iterable[str], settings: Settings) -> str:
    wanted = [
        name for name in topics if name not in NEVER and (settings.topics.internal or not is_internal_topic(name))
    ]
    try:
        require_topic(wanted, settings)
    except SettingsError as error:
        return str(error)
    return ""
