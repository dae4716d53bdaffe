"""What a check may find, and what all of them come to. Values only."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

JSON_VERSION = 1
SEVERAL_KINDS = 3
"""The exit code where problems of several kinds were found."""


class Area(StrEnum):
    """A group of checks. Areas are checked in parallel."""

    SETTINGS = "settings"
    LOG_DIRS = "log_dirs"
    BROKER = "broker"
    STORE = "store"
    MACHINE = "machine"
    COMPACTION = "compaction"


class Verdict(StrEnum):
    """OK; WARNING: it works, but; PROBLEM: archiving will not work; NOT_CHECKED: what it needs is not there."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"
    NOT_CHECKED = "not_checked"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a check says. `advice`: what to do, "" where there is nothing to be done, or where `detail` says it.

    `exit_code`: of a problem, as in `sidecar.errors`.
    """

    verdict: Verdict
    detail: str
    advice: str = ""
    exit_code: int = 0


def fine(detail: str) -> Outcome:
    return Outcome(Verdict.OK, detail)


def warning(detail: str, advice: str) -> Outcome:
    return Outcome(Verdict.WARNING, detail, advice)


def problem(detail: str, advice: str = "", exit_code: int = 1) -> Outcome:
    return Outcome(Verdict.PROBLEM, detail, advice, exit_code)


def not_checked(reason: str, advice: str = "") -> Outcome:
    return Outcome(Verdict.NOT_CHECKED, reason, advice)


@dataclass(frozen=True, slots=True)
class Check:
    """One question. `ask` may raise SidecarError, which is a problem. `needs`: names of earlier checks of the area without
    which there is nothing to ask.
    """

    name: str
    ask: Callable[[], Outcome]
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    area: Area
    check: str
    outcome: Outcome
    duration_ms: int = 0

    def as_json(self) -> dict[str, Any]:
        return {
            "area": self.area.value,
            "check": self.check,
            "verdict": self.outcome.verdict.value,
            "detail": self.outcome.detail,
            "advice": self.outcome.advice,
            "duration_ms": self.duration_ms,
        }


@dataclass(frozen=True, slots=True)
class Report:
    """All findings, area after area. `has_hung`: some check has not come back, and still holds a thread."""

    findings: Sequence[Finding]
    has_hung: bool = False

    def counts(self) -> Mapping[Verdict, int]:
        return {verdict: sum(found.outcome.verdict is verdict for found in self.findings) for verdict in Verdict}

    @property
    def exit_code(self) -> int:
        """0 without a problem, else the code of the problems, or `SEVERAL_KINDS` where they have several."""
        codes = {found.outcome.exit_code for found in self.findings if found.outcome.verdict is Verdict.PROBLEM}
        if not codes:
            return 0
        return codes.pop() if len(codes) == 1 else SEVERAL_KINDS

    def as_json(self) -> dict[str, Any]:
        counts = {verdict.value: count for verdict, count in self.counts().items()}
        checks = [found.as_json() for found in self.findings]
        return {
            "kind": "doctor",
            "version": JSON_VERSION,
            "checks": checks,
            "counts": counts,
            "exit_code": self.exit_code,
        }
