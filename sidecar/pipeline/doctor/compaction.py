"""Compaction by `run`, where it is on: what it is for, and the Java that large compactions need."""

from __future__ import annotations

import os
from functools import partial

from sidecar.clock import Clock
from sidecar.config import Settings
from sidecar.discovery.scan import topics_of
from sidecar.pipeline.compaction.tombstone_expiry import ADVICE, tombstone_expiry_risk
from sidecar.pipeline.compaction.topic_rule import topic_rule
from sidecar.pipeline.configured_facts import open_facts
from sidecar.pipeline.doctor.findings import Check, Outcome, fine, not_checked, warning
from sidecar.pipeline.doctor.machine import uses_spark
from sidecar.spark.java import java_home, require_user_name


def _topics(settings: Settings) -> Outcome:
    names = topics_of(settings.broker.log_dirs)
    chosen = [name for name in names if settings.topics.accepts(name) and settings.compaction.of_topic(name)]
    if names and not chosen:
        return warning(
            "compaction.topics matches no topic that is here", "correct its patterns: they match whole names"
        )
    return fine(f"{len(chosen)} of {len(names)} topics here are compacted in the archive")


def _java(settings: Settings) -> Outcome:
    if not uses_spark(settings):
        return not_checked("compaction.engine is local, no JVM is started")
    home = java_home(settings.spark.java_home, os.environ)
    require_user_name()
    return fine(f"Java 17 or newer {f'in {home}' if home else 'on the path'}")


def _tombstones(settings: Settings, clock: Clock) -> Outcome:
    """Raises BrokerUnavailable, SettingsError."""
    risks = {}
    with open_facts(settings, clock) as facts:
        facts.refresh()
        for topic in filter(settings.topics.accepts, topics_of(settings.broker.log_dirs)):
            told = facts.policy(topic)
            policy = topic_rule(settings.compaction, topic, told).policy
            if policy is not None and (risk := tombstone_expiry_risk(policy, told.segment_ms)):
                risks[topic] = risk
    if not risks:
        return fine("none is removed before older versions of its key are compacted")
    topic, risk = next(iter(sorted(risks.items())))
    return warning(f"{len(risks)} topics, such as {topic}: {risk}", ADVICE)


def compaction_checks(settings: Settings, clock: Clock) -> list[Check]:
    """What can be asked of compaction; one line where no topic is to be compacted."""
    if not settings.compaction.is_active:
        return [Check("topics", partial(not_checked, "compaction.topics names none, or compaction.enabled is false"))]
    return [
        Check("topics", partial(_topics, settings)),
        Check("tombstones", partial(_tombstones, settings, clock)),
        Check("java", partial(_java, settings)),
    ]
