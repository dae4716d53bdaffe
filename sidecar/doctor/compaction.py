"""Compaction by `run`, where it is on: what it is for, and the Java that large compactions need."""

import os
from collections.abc import Mapping
from functools import partial

from sidecar.clock import Clock
from sidecar.compactor.topic_counts import BEFORE_UPLOAD_ADVICE, before_upload_risk
from sidecar.compactor.topic_rule import (
    EXPIRY_ADVICE,
    EXPIRY_ADVICE_UNCHECKED,
    NAME_HEADER,
    TopicRule,
    expiry_unchecked,
    tombstone_expiry_risk,
    topic_rule,
)
from sidecar.config import CompactionPolicy, Settings
from sidecar.doctor.findings import Check, Outcome, fine, not_checked, warning
from sidecar.doctor.machine import uses_spark
from sidecar.logformat.files import topics_of
from sidecar.plurals import plural
from sidecar.runner.configured_facts import open_facts
from sidecar.spark.java import java_home, require_user_name
from sidecar.topic_policy import TopicPolicy


def _topics(settings: Settings) -> Outcome:
    names = topics_of(settings.broker.log_dirs)
    chosen = [name for name in names if settings.topics.filter.accepts(name) and settings.compaction.of_topic(name)]
    if names and not chosen:
        return warning(
            "compaction.topics matches no topic of this broker", "correct its patterns: they match whole names"
        )
    return fine(f"topics here that are compacted in the archive: {len(chosen)} of {len(names)}")


def _java(settings: Settings) -> Outcome:
    if not uses_spark(settings):
        return not_checked("spark.engine is local, no JVM is started")
    home = java_home(settings.spark.java_home, os.environ)
    require_user_name()
    return fine(f"Java 17 or newer {f'in {home}' if home else 'on the path'}")


def _strategy(settings: Settings, clock: Clock) -> Outcome:
    unnamed = {
        topic: rule.why_not if rule.is_unnamed_in_settings else rule.remark
        for topic, rule, _ in _rules(settings, clock)
    }
    return _worst(unnamed, NAME_HEADER) or fine("every topic with strategy header names its header")


def _tombstones(settings: Settings, clock: Clock) -> Outcome:
    compacted = _compacted(settings, clock)
    risks = {topic: tombstone_expiry_risk(policy, reported.segment_ms) for topic, policy, reported in compacted}
    if at_risk := _worst(risks, EXPIRY_ADVICE):
        return at_risk
    unknown = {topic: expiry_unchecked(policy, reported.segment_ms) for topic, policy, reported in compacted}
    if unchecked := _first(unknown):
        return not_checked(unchecked, EXPIRY_ADVICE_UNCHECKED)
    return fine("none is removed before older versions of its key are compacted")


def _before_upload(settings: Settings, clock: Clock) -> Outcome:
    delay_ms = settings.compaction.max_upload_delay_ms
    risks = {topic: before_upload_risk(policy, delay_ms) for topic, policy, _ in _compacted(settings, clock)}
    return _worst(risks, BEFORE_UPLOAD_ADVICE) or fine("every topic with when: before_upload can be compacted")


def _rules(settings: Settings, clock: Clock) -> list[tuple[str, TopicRule, TopicPolicy]]:
    """The topics here, compacted or not, and what holds for them. Raises BrokerUnavailable, SettingsError."""
    with open_facts(settings, clock) as facts:
        facts.refresh()
        topics = filter(settings.topics.filter.accepts, topics_of(settings.broker.log_dirs))
        reported = {topic: facts.policy(topic) for topic in topics}
    return [(topic, topic_rule(settings.compaction, topic, policy), policy) for topic, policy in reported.items()]


def _compacted(settings: Settings, clock: Clock) -> list[tuple[str, CompactionPolicy, TopicPolicy]]:
    """As `_rules`, those that are compacted."""
    return [
        (topic, rule.policy, reported) for topic, rule, reported in _rules(settings, clock) if rule.policy is not None
    ]


def _worst(risks: Mapping[str, str], advice: str) -> Outcome | None:
    """A warning with the first of these topics; None if none is at risk."""
    at_risk = _first(risks)
    return warning(at_risk, advice) if at_risk else None


def _first(findings: Mapping[str, str]) -> str:
    """How many topics have one of these, and that of the first; "" if none has."""
    found = sorted((topic, what) for topic, what in findings.items() if what)
    return f"{plural(len(found), 'topic')}, such as {found[0][0]}: {found[0][1]}" if found else ""


def compaction_checks(settings: Settings, clock: Clock) -> list[Check]:
    """What can be asked of compaction; one line where no topic is to be compacted."""
    if not settings.compaction.is_active:
        return [Check("topics", partial(not_checked, "compaction.topics names none, or compaction.enabled is false"))]
    return [
        Check("topics", partial(_topics, settings)),
        Check("strategy", partial(_strategy, settings, clock)),
        Check("tombstones", partial(_tombstones, settings, clock)),
        Check("before upload", partial(_before_upload, settings, clock)),
        Check("java", partial(_java, settings)),
    ]
