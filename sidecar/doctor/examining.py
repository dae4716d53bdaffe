"""Asks all checks: areas side by side, the checks of an area one after the other, none for longer than it may take."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from sidecar.clock import Clock
from sidecar.doctor.findings import Area, Check, Finding, Outcome, Report, Verdict, not_checked, problem
from sidecar.errors import SidecarError


class _Asked(threading.Thread):
    """One check in a thread that nobody has to wait for: a disk or a store may hang for ever."""

    def __init__(self, check: Check) -> None:
        super().__init__(name=f"doctor-{check.name}", daemon=True)
        self._check = check
        self.outcome: Outcome | None = None
        self.fault: BaseException | None = None

    def run(self) -> None:
        """See `threading.Thread`."""
        try:
            self.outcome = _asked(self._check)
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits, which raises it
            self.fault = error


def _asked(check: Check) -> Outcome:
    try:
        return check.ask()
    except SidecarError as error:
        return problem(str(error), exit_code=error.exit_code)
    except OSError as error:
        return problem(f"{error.filename or check.name}: {error.strerror or error}")


def examine(
    areas: Mapping[Area, Sequence[Check]],
    clock: Clock,
    *,
    timeout_s: float,
    cleaned: Callable[[str], str] = lambda text: text,
) -> Report:
    """Ask everything.

    Args:
        timeout_s: for each check. One that takes longer is a problem, and those that need it are not asked.
        cleaned: takes secrets out of a text.
    """
    asked = [_Area(area, checks, clock, timeout_s) for area, checks in areas.items()]
    for one in asked:
        one.start()
    for one in asked:
        one.join()
    for one in asked:
        if one.fault is not None:
            raise one.fault
    findings = [_without_secrets(found, cleaned) for one in asked for found in one.findings]
    return Report(findings, any(one.has_hung for one in asked))


def _without_secrets(found: Finding, cleaned: Callable[[str], str]) -> Finding:
    outcome = replace(found.outcome, detail=cleaned(found.outcome.detail), advice=cleaned(found.outcome.advice))
    return replace(found, outcome=outcome)


class _Area(threading.Thread):
    """The checks of one area, in order."""

    def __init__(self, area: Area, checks: Sequence[Check], clock: Clock, timeout_s: float) -> None:
        super().__init__(name=f"doctor-{area}", daemon=True)
        self._area = area
        self._checks = checks
        self._clock = clock
        self._timeout_s = timeout_s
        self.findings: list[Finding] = []
        self.has_hung = False
        self.fault: BaseException | None = None

    def run(self) -> None:
        """See `threading.Thread`."""
        failed: set[str] = set()
        for check in self._checks:
            begun_s = self._clock.monotonic_s()
            outcome = self._outcome(check, failed)
            if outcome is None:
                return
            if outcome.verdict in {Verdict.PROBLEM, Verdict.NOT_CHECKED}:
                failed.add(check.name)
            duration_ms = round((self._clock.monotonic_s() - begun_s) * 1000)
            self.findings.append(Finding(self._area, check.name, outcome, duration_ms))

    def _outcome(self, check: Check, failed: set[str]) -> Outcome | None:
        """None after a fault of our own."""
        lacking = next((name for name in check.needs if name in failed), None)
        if lacking is not None:
            return not_checked(f"it needs '{lacking}'")
        asked = _Asked(check)
        asked.start()
        asked.join(self._timeout_s)
        if asked.fault is not None:
            self.fault = asked.fault
            return None
        if asked.outcome is None:
            self.has_hung = True
            limit = f"{self._timeout_s:g} s"
            return problem(f"no answer within {limit}", "find out what hangs, or allow more time by --timeout")
        return asked.outcome
