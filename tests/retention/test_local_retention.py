"""By which limits a broker deletes local segments. Source: UnifiedLog.deleteOldSegments, UnifiedLog.localRetentionMs."""

from __future__ import annotations

from sidecar.broker.cluster_view import ConfigValue
from sidecar.broker.topic_configs import resolve_policy
from sidecar.topic_policy import TopicPolicy


def resolved(**values: str) -> TopicPolicy:
    reported = {name.replace("_", "."): ConfigValue(text, "topic") for name, text in values.items()}
    return resolve_policy("orders", reported, {}, ())


def test_local_retention_holds_without_any_cleanup_policy() -> None:
    """An empty `cleanup.policy` deletes no segment, except where the broker copies them to remote storage."""
    policy = resolved(cleanup_policy="", remote_storage_enable="true", retention_ms="-1", local_retention_ms="3600000")
    assert policy.local_limit_ms == 3_600_000
    assert not policy.deletes_nothing


def test_local_retention_does_not_hold_where_nothing_is_copied_any_more() -> None:
    """KIP-950: with `remote.log.copy.disable` the whole retention counts, and what was not copied is deleted by it."""
    policy = resolved(
        cleanup_policy="delete",
        remote_storage_enable="true",
        remote_log_copy_disable="true",
        retention_ms="604800000",
        local_retention_ms="3600000",
    )
    assert policy.local_limit_ms == 604_800_000
