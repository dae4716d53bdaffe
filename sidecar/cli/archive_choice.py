"""What of an archive the operator has chosen by --topic and --exclude."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.config import Settings
    from sidecar.ports import ObjectStore


def is_chosen(settings: Settings) -> Callable[[str], bool]:
    """Which topics are wanted. Internal ones are as good as others here: they are archived only where that was asked."""
    from sidecar.discovery.topic_filter import TopicFilter

    topics = TopicFilter(settings.topics.include, settings.topics.exclude)
    return lambda topic: topics.accepts(topic, internal_topics=True)


def require_chosen(store: ObjectStore, settings: Settings) -> None:
    """Where nothing was found: raise SettingsError if it was only not asked for."""
    from sidecar.pipeline.assembly import require_topic
    from sidecar.pipeline.lineages import find_all_lineages

    topics = {lineage.topic_partition.topic for lineage in find_all_lineages(store)}
    require_topic(topics, settings, internal=True)
