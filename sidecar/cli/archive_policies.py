"""What a broker, where one is configured, says of the topics that `compact --archive` is to compact."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sidecar.archive.keys import Lineage
    from sidecar.compaction.rules import CompactionRules
    from sidecar.config import CompactionPolicy, Settings
    from sidecar.pipeline.compaction.archive_request import CompactionRequest
    from sidecar.ports import ObjectStore
    from sidecar.topic_policy import TopicPolicy


def policies_of(settings: Settings, lineages: Sequence[Lineage]) -> dict[str, TopicPolicy]:
    """By topic; nobody is asked unless `broker.connection` names somebody. Raises BrokerUnavailable."""
    from sidecar.broker.connection import BrokerConnection
    from sidecar.broker.topic_configs import ask_topics
    from sidecar.broker.topic_policy import resolve_policy

    topics = sorted({lineage.topic_partition.topic for lineage in lineages})
    overrides = settings.topics.policies
    if not settings.broker.connection.is_configured:
        return {topic: resolve_policy(topic, {}, {}, overrides) for topic in topics}
    connection = BrokerConnection(settings.broker.connection)
    try:
        told = ask_topics(connection, topics)
    finally:
        connection.close()
    return {
        topic: resolve_policy(topic, told.values.get(topic, {}), {}, overrides, unanswered=told.problems.get(topic, ""))
        for topic in topics
    }


def request_of(
    settings: Settings,
    store: ObjectStore,
    lineage: Lineage,
    rules: CompactionRules,
    told: TopicPolicy,
    given_ms: int | None,
) -> CompactionRequest | str:
    """What to ask for, or why the topic is left alone. Raises StoreError, PartitionError.

    Args:
        given_ms: --delete-retention-ms, None if it was not given: then the topic's own counts, as in `run`.
    """
    from sidecar.pipeline.compaction.archive_request import CompactionRequest
    from sidecar.pipeline.compaction.topic_rule import keeps_every_record, with_told

    topic = lineage.topic_partition.topic
    own = settings.compaction.of_topic(topic) or settings.compaction
    refusal = "" if own.ignore_cleanup_policy else keeps_every_record(told)
    if refusal:
        return f"{refusal}; --set compaction.ignore_cleanup_policy=true compacts it all the same"
    policy, _ = with_told(settings.compaction, topic, own, told)
    retention_ms = policy.delete_retention_ms if given_ms is None else given_ms
    return CompactionRequest(
        lineage.root,
        replace(rules, delete_retention_ms=retention_ms),
        end_offset=_end_of_old_enough(store, lineage, policy, rules.now_ms),
        keep_raw_ms=own.keep_raw_ms,
    )


def _end_of_old_enough(store: ObjectStore, lineage: Lineage, policy: CompactionPolicy, now_ms: int) -> int | None:
    """Where records begin that are too young for `min.compaction.lag.ms`; None where it is not set."""
    from sidecar.clock import SystemClock
    from sidecar.pipeline.commit_log import CommitLog
    from sidecar.pipeline.compaction.policy import assess

    if not policy.min_compaction_lag_ms:
        return None
    state = CommitLog(store, lineage.root, SystemClock()).read()
    return assess(state.segments, state.clean_end_offset, policy, now_ms=now_ms).first_uncleanable_offset
