"""What of an archive the operator has chosen by --topic and --exclude."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sidecar.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sidecar.config import Settings
    from sidecar.ports import ObjectStore


def is_chosen(settings: Settings) -> Callable[[str], bool]:
    """Which topics are wanted. Internal ones are as good as others here: they are archived only where that was asked."""
    from sidecar.discovery.scan import TopicFilter

    topics = TopicFilter(settings.topics.include, settings.topics.exclude)
    return lambda topic: topics.accepts(topic, internal_topics=True)


def with_chosen(settings: Settings, include: Sequence[str] | None, exclude: Sequence[str] | None) -> Settings:
    """The settings with --topic and --exclude in the place of `topics.include` and `topics.exclude`. Raises SettingsError.

    The flags choose among what the archive has. They do not say what `run` archives: entries of `compaction.topics` for
    other topics stay valid.
    """
    from sidecar.config.section import require_pattern

    for flag, patterns in (("--topic", include), ("--exclude", exclude)):
        for pattern in patterns or ():
            try:
                require_pattern(pattern)
            except ValueError as error:
                raise SettingsError(f"{flag}: {error}") from error
    chosen: dict[str, Any] = {"include": tuple(include)} if include else {}
    if exclude:
        chosen["exclude"] = tuple(exclude)
    return settings.model_copy(update={"topics": settings.topics.model_copy(update=chosen)})


def require_chosen(store: ObjectStore, settings: Settings) -> None:
    """Where nothing was found: raise SettingsError if it was only not asked for."""
    from sidecar.commits.lineages import find_all_lineages
    from sidecar.runner.assembly import require_topic

    topics = {lineage.topic_partition.topic for lineage in find_all_lineages(store)}
    require_topic(topics, settings, internal=True)
