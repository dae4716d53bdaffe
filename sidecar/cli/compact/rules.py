"""What a `compact` command was asked for, and the refusal or the log of flags that say something else than is declared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from sidecar.cli.output import remark
from sidecar.clock import SystemClock
from sidecar.compactor.command_rules import CommandRules, GivenRules, Objection, command_rules
from sidecar.compactor.topic_rule import rules_of
from sidecar.errors import BrokerUnavailable, PartitionError, SettingsError
from sidecar.event_log import EVENTS

if TYPE_CHECKING:
    from sidecar.archive.keys import Lineage
    from sidecar.compaction.rules import CompactionRules
    from sidecar.compactor.archive.plan import CompactionRequest
    from sidecar.compactor.command_rules import CommandRules, Objection
    from sidecar.config import CompactionPolicy, Settings
    from sidecar.ports import ObjectStore
    from sidecar.topic_policy import TopicPolicy

_BROKER_AWAY: Final = (
    "This is the broker of broker.connection. The command asks it for the topics' configs: cleanup.policy decides whether a "
    "topic is compacted. Nothing was compacted. Start the broker, or correct broker.connection. With `--set "
    "broker.connection.bootstrap_servers=[]` no broker is asked. Then only the settings decide, and topics whose cleanup.policy "
    "lacks compact are compacted, too"
)
_SHOWN_MAX: Final = 5
"""So many objections at most in one error."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The flags of a command. `now_ms`: the time that decides on tombstones. `override`: flags count whatever is declared.

    `what_if`: nothing is written, and every strategy is tried.
    """

    given: GivenRules
    now_ms: int
    override: bool = False
    what_if: bool = False

    def of_topic(self, settings: Settings, topic: str, reported: TopicPolicy) -> CommandRules:
        """What holds for a topic. Raises SettingsError for flags that cannot be meant together."""
        return command_rules(settings.compaction, topic, reported, self.given, is_forecast=self.what_if)

    def rules_of(self, rules: CommandRules) -> CompactionRules:
        """The same for the compaction itself, of a topic that is not left alone."""
        if rules.policy is None:
            raise SettingsError(f"topic {rules.topic}: {rules.why_not}")
        found = rules_of(rules.policy, self.now_ms)
        return replace(found, header=rules.header) if self.what_if else found

    def settle(self, objections: Sequence[Objection]) -> None:
        """Raise SettingsError for objections, unless they are overridden: then the log has each."""
        if self.override:
            for objection in objections:
                EVENTS.warning("compaction_rules_overridden", subject=objection.subject, reason=objection.what)
        elif objections:
            more = len(objections) - _SHOWN_MAX
            texts = [*map(str, objections[:_SHOWN_MAX]), *([f"and {more} more"] if more > 0 else [])]
            raise SettingsError("\n".join(texts))


def tell_rules(rules: Iterable[CommandRules]) -> None:
    """Say by which strategy each topic is compacted, and what says so."""
    for found in rules:
        if found.policy is not None:
            remark(f"topic {found.topic}: strategy {found.in_use} ({found.chosen_by})")
            if found.remark:
                remark(f"topic {found.topic}: {found.remark}")


_THREADS: Final = 8


def policies_of(settings: Settings, lineages: Sequence[Lineage]) -> dict[str, TopicPolicy]:
    """By topic; no broker is queried without `broker.connection`. Raises BrokerUnavailable."""
    from sidecar.broker.connection import BrokerConnection
    from sidecar.broker.topic_configs import ask_topics, resolve_policy, why_unanswered

    topics = sorted({lineage.topic_partition.topic for lineage in lineages})
    overrides = settings.topics.policies
    if not settings.broker.connection.is_configured:
        return {topic: resolve_policy(topic, {}, {}, overrides) for topic in topics}
    try:
        with closing(BrokerConnection(settings.broker.connection)) as connection:
            reported = ask_topics(connection, topics)
    except BrokerUnavailable as error:
        error.add_note(_BROKER_AWAY)
        raise

    def resolved(topic: str) -> TopicPolicy:
        of_topic = reported.values.get(topic, {})
        unanswered = "" if of_topic else why_unanswered(reported.problems.get(topic))
        return resolve_policy(topic, of_topic, {}, overrides, unanswered=unanswered)

    return {topic: resolved(topic) for topic in topics}


def request_of(
    store: ObjectStore, lineage: Lineage, rules: CommandRules, reported: TopicPolicy, wanted: Wanted
) -> CompactionRequest | str:
    """What to ask for, or why the topic is left alone. Raises StoreError, PartitionError."""
    from sidecar.compactor.archive.plan import CompactionRequest
    from sidecar.compactor.topic_rule import keeps_every_record

    policy = rules.policy
    if policy is None:
        return rules.why_not
    refusal = "" if policy.ignore_cleanup_policy else keeps_every_record(reported)
    if refusal:
        return f"{refusal}; --set compaction.ignore_cleanup_policy=true compacts it anyway"
    return CompactionRequest(
        lineage.root,
        wanted.rules_of(rules),
        end_offset=_end_of_old_enough(store, lineage, policy, wanted.now_ms),
        keep_raw_ms=policy.keep_raw_ms,
        may_change_strategy=rules.may_change_strategy or wanted.override or wanted.what_if,
    )


def changes_of(
    store: ObjectStore, lineages: Sequence[Lineage], rules: Mapping[str, CommandRules]
) -> tuple[Objection, ...]:
    """The partitions whose strategy would change although nothing declares another one. Raises StoreError.

    Args:
        rules: by topic.
    """
    from sidecar.commits.commit_log import CommitLog

    def change_of(lineage: Lineage) -> Objection | None:
        found = rules[lineage.topic_partition.topic]
        if found.policy is None or found.may_change_strategy:
            return None
        try:
            return found.change_of(CommitLog(store, lineage.root, SystemClock()).read())
        except PartitionError:
            return None  # Its compaction meets the same error, and reports it.

    with ThreadPoolExecutor(_THREADS, thread_name_prefix="strategies") as pool:
        return tuple(change for change in pool.map(change_of, lineages) if change is not None)


def _end_of_old_enough(store: ObjectStore, lineage: Lineage, policy: CompactionPolicy, now_ms: int) -> int | None:
    """Where records begin that are too young for `min.compaction.lag.ms`; None where it is not set."""
    from sidecar.commits.commit_log import CommitLog
    from sidecar.compactor.policy import assess

    if not policy.min_compaction_lag_ms:
        return None
    try:
        state = CommitLog(store, lineage.root, SystemClock()).read()
    except PartitionError:
        return 0  # Its compaction meets the same error, and reports it. If not, it compacts nothing.
    return assess(state.segments, state.clean_end_offset, policy, now_ms=now_ms).first_uncleanable_offset
