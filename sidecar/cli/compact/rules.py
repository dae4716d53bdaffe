"""What a `compact` command was asked for, and the refusal or the log of flags that say something else than is declared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import structlog

from sidecar.cli.output import remark
from sidecar.compactor.command_rules import CommandRules, GivenRules, Objection, command_rules
from sidecar.compactor.policy_rules import rules_of
from sidecar.errors import SettingsError

if TYPE_CHECKING:
    from sidecar.compaction.rules import CompactionRules
    from sidecar.config import Settings
    from sidecar.topic_policy import TopicPolicy

_log = structlog.get_logger(__name__)
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

    def of_topic(self, settings: Settings, topic: str, told: TopicPolicy) -> CommandRules:
        """What holds for a topic. Raises SettingsError for flags that cannot be meant together."""
        return command_rules(settings.compaction, topic, told, self.given, is_forecast=self.what_if)

    def rules_of(self, rules: CommandRules) -> CompactionRules:
        """The same for the compaction itself, of a topic that is not left alone."""
        if rules.policy is None:
            raise SettingsError(f"topic {rules.topic}: {rules.why_not}")
        found = rules_of(rules.policy, self.now_ms)
        return replace(found, header=rules.candidate_header) if self.what_if else found

    def settle(self, objections: Sequence[Objection]) -> None:
        """Raise SettingsError for objections, unless they are overridden: then the log has each."""
        if self.override:
            for objection in objections:
                _log.warning("compaction_rules_overridden", subject=objection.subject, reason=objection.what)
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
