"""By which rules `compact` compacts a topic: its flags, over what the settings and the topic's own configs say. Pure."""

from dataclasses import dataclass
from typing import Any, Final

from sidecar.archive.state import PartitionState, newest_strategy
from sidecar.compaction_strategy import OnUnkeyed, Strategy, StrategyInUse, header_name, strategy_in_use
from sidecar.compactor.topic_rule import (
    DEFAULT,
    DROPS_RECORDS,
    ENTRY,
    HEADER_NEEDED,
    SECTION,
    TopicRule,
    not_known,
    unnamed_header,
    with_reported,
)
from sidecar.config import CompactionSettings
from sidecar.errors import SettingsError
from sidecar.topic_policy import TopicPolicy

_FLAGS: Final = ("strict", "on_unkeyed", "exact_keys", "segment_bytes")
"""Settings with a flag of the same name. Strategy and header are compared together."""


@dataclass(frozen=True, slots=True)
class GivenRules:
    """What the flags of `compact` say; None for each that was not given."""

    strategy: Strategy | None = None
    header: str | None = None
    strict: bool | None = None
    exact_keys: bool | None = None
    segment_bytes: int | None = None
    delete_retention_ms: int | None = None
    on_unkeyed: OnUnkeyed | None = None


@dataclass(frozen=True, slots=True)
class Objection:
    """Why something needs --override. `subject`: a topic or a partition."""

    subject: str
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.what}. Nothing was compacted. {self.remedy}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRules(TopicRule):
    """What holds for a topic, as declared and by the flags.

    `entry`: the pattern of its entry in `compaction.topics`, None without one. `chosen_by`: what has the last word on its
    strategy. `contradictions`: a sentence for each flag that says something else than what is declared.
    `may_change_strategy`: whether the newest compaction may have been by another strategy.
    """

    topic: str
    entry: str | None = None
    may_change_strategy: bool = False
    contradictions: tuple[str, ...] = ()
    chosen_by: str = ""

    @property
    def in_use(self) -> StrategyInUse:
        return StrategyInUse("") if self.policy is None else StrategyInUse(self.policy.strategy, self.policy.header)

    @property
    def objections(self) -> tuple[Objection, ...]:
        """Why the flags need --override; none if they do not."""
        remedy = "Leave the option out to compact the topic as declared, or give --override to use the option"
        return tuple(Objection(f"topic {self.topic}", what, remedy) for what in self.contradictions)

    def change_of(self, state: PartitionState) -> Objection | None:
        """Why a partition must not be compacted by this strategy without --override, None if it may.

        Where nothing declares the topic's strategy, it is that of the newest compaction.
        """
        newest = newest_strategy(state)
        if self.may_change_strategy or newest is None or newest == self.in_use:
            return None
        header = f" --header {newest.header}" if newest.header else ""
        return Objection(
            str(state.lineage.topic_partition),
            f"its newest compaction used strategy {newest}, this one would use {self.in_use}, and no entry in "
            "compaction.topics declares the topic's strategy",
            f"Give --strategy {newest.strategy}{header} to keep the strategy, or --override to change it",
        )


def command_rules(
    settings: CompactionSettings, topic: str, reported: TopicPolicy, given: GivenRules, *, is_forecast: bool = False
) -> CommandRules:
    """Resolve the flags for a topic. Raises SettingsError for flags that cannot be meant together.

    A topic's strategy is declared by its entry in `compaction.topics`, by `compaction` for a topic that has an entry, or by
    the topic's config `compaction.strategy`; a default declares nothing. The other flags contradict an entry only where the
    settings give them a value. A forecast writes nothing: no flag contradicts anything there.
    """
    entry = settings.entry_of(topic)
    pattern = None if entry is None else entry.pattern
    found = with_reported(settings, topic, reported)
    if found.policy is None:
        return CommandRules(None, found.why_not, topic=topic, entry=pattern)
    declared = StrategyInUse(found.policy.strategy, found.policy.header)
    declared_by = _declared_by(found.sources["strategy"], pattern)
    strategy = found.strategy if given.strategy is None else given.strategy
    header = found.header if given.header is None else given.header
    in_use = strategy_in_use(strategy, header)
    is_given = given.strategy is not None or given.header is not None
    if unnamed_header(strategy, header) and (is_given or found.is_unnamed_in_settings) and not is_forecast:
        raise SettingsError(f"topic {topic}: {HEADER_NEEDED}: give --header NAME, or --strategy offset")
    contradictions: list[str] = []
    if is_given and declared_by and in_use != declared and not is_forecast:
        contradictions.append(f"{_words(given)} means strategy {in_use}, but {declared_by} says {declared}")
    elif in_use.strategy != Strategy.HEADER and header_name(given.header or "") and not is_forecast:
        raise SettingsError(f"--header {given.header} is for --strategy header, not {in_use.strategy}")
    values: dict[str, Any] = {"strategy": Strategy(in_use.strategy), "header": in_use.header}
    for name in _FLAGS:
        flag, value = name.replace("_", "-"), getattr(given, name)
        if value is None:
            continue
        values[name] = value
        declared_value = getattr(found.policy, name)
        if pattern is not None and found.sources[name] != DEFAULT and value != declared_value and not is_forecast:
            says = f"--{flag} {value}" if not isinstance(value, bool) else f"--{'' if value else 'no-'}{flag}"
            contradictions.append(
                f"{says} was given, but {found.sources[name]} says {name} {str(declared_value).lower()}"
            )
    if given.delete_retention_ms is not None:
        values["delete_retention_ms"] = given.delete_retention_ms
    given_too = {name: "flag" for name in DROPS_RECORDS if getattr(given, name, None) is not None}
    unknown = not_known(found.policy, {**found.sources, **given_too}, strategy, reported)
    if unknown:
        return CommandRules(None, unknown, topic=topic, entry=pattern)
    return CommandRules(
        found.policy.model_copy(update=values),
        sources=found.sources,
        strategy=strategy,
        header=header,
        topic=topic,
        entry=pattern,
        may_change_strategy=bool(declared_by) and found.is_declared,
        contradictions=tuple(contradictions),
        chosen_by="flag"
        if is_given and not (declared_by and in_use == declared)
        else declared_by or found.sources["strategy"],
    )


def _declared_by(source: str, pattern: str | None) -> str:
    """What declares a topic's strategy, "" if nothing does. `source`: of its value. `pattern`: of its entry."""
    if source == DEFAULT or (source == SECTION and pattern is None):
        return ""
    if pattern is None:
        return f"its config compaction.strategy ({source})"
    entry = f"{ENTRY} {pattern}"
    return entry if source == entry else f"{entry} (strategy: {source})"


def _words(given: GivenRules) -> str:
    strategy = "" if given.strategy is None else f"--strategy {given.strategy}"
    header = "" if given.header is None else f"--header {given.header!r}"
    return " ".join(filter(None, (strategy, header)))
