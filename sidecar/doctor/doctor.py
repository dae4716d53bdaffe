"""All checks of the areas that are asked for, put together from settings.

Areas are asked side by side, the checks of an area one after the other, none for longer than it may take.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import wait
from dataclasses import replace
from functools import partial

from sidecar.clock import Clock, SystemClock
from sidecar.config import Settings
from sidecar.doctor.broker import broker_checks
from sidecar.doctor.compaction import compaction_checks
from sidecar.doctor.findings import Area, Check, Finding, Outcome, Report, Verdict, not_checked, problem
from sidecar.doctor.log_dirs import log_dir_checks
from sidecar.doctor.machine import machine_checks
from sidecar.doctor.settings_rules import settings_checks
from sidecar.doctor.store import store_checks
from sidecar.errors import SidecarError
from sidecar.threads import begun

TIMEOUT_S = 30.0


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
    works = [
        begun(f"doctor-{area}", partial(_examined, area, checks, clock, timeout_s)) for area, checks in areas.items()
    ]
    wait(works)
    answers = [work.result() for work in works]
    findings = []
    for found in (found for answer in answers for found in answer[0]):
        detail, advice = cleaned(found.outcome.detail), cleaned(found.outcome.advice)
        findings.append(replace(found, outcome=replace(found.outcome, detail=detail, advice=advice)))
    return Report(findings, any(has_hung for _, has_hung in answers))


def _examined(area: Area, checks: Sequence[Check], clock: Clock, timeout_s: float) -> tuple[list[Finding], bool]:
    """What the checks of one area found, in order, and whether one of them has hung."""
    findings: list[Finding] = []
    failed: set[str] = set()
    has_hung = False
    for check in checks:
        begun_s = clock.monotonic_s()
        lacking = next((name for name in check.needs if name in failed), None)
        outcome = not_checked(f"it needs '{lacking}'") if lacking is not None else _outcome(check, timeout_s)
        if outcome is None:
            has_hung = True
            advice = "find the cause of the delay, or raise --timeout"
            outcome = problem(f"no answer within {timeout_s:g} s", advice)
        if outcome.verdict in {Verdict.PROBLEM, Verdict.NOT_CHECKED}:
            failed.add(check.name)
        findings.append(Finding(area, check.name, outcome, round((clock.monotonic_s() - begun_s) * 1000)))
    return findings, has_hung


def _outcome(check: Check, timeout_s: float) -> Outcome | None:
    """What one check says; None if it does not come back in time."""

    def ask() -> Outcome:
        try:
            return check.ask()
        except SidecarError as error:
            return problem(str(error), exit_code=error.exit_code)
        except OSError as error:
            return problem(f"{error.filename or check.name}: {error.strerror or error}")

    try:
        return begun(f"doctor-{check.name}", ask).result(timeout_s)
    except TimeoutError:  # One of the check itself would be an OSError.
        return None


def doctor(
    settings: Settings,
    *,
    areas: Collection[Area] = tuple(Area),
    timeout_s: float = TIMEOUT_S,
    clock: Clock | None = None,
    cleaned: Callable[[str], str] = lambda text: text,
) -> Report:
    """Check everything that archiving with these settings needs; see `examine`. Raises nothing for what it finds."""
    clock = clock or SystemClock()
    made: Mapping[Area, Callable[[], Sequence[Check]]] = {
        Area.SETTINGS: lambda: settings_checks(settings),
        Area.LOG_DIRS: lambda: log_dir_checks(settings, clock),
        Area.BROKER: lambda: broker_checks(settings, clock),
        Area.STORE: lambda: store_checks(settings, clock, timeout_s),
        Area.MACHINE: lambda: machine_checks(settings),
        Area.COMPACTION: lambda: compaction_checks(settings, clock),
    }
    chosen = {area: make() for area, make in made.items() if area in areas}
    return examine(chosen, clock, timeout_s=timeout_s, cleaned=cleaned)


def without_settings(error: str, exit_code: int, areas: Collection[Area] = tuple(Area)) -> Report:
    """The report where the settings cannot be read: everything else depends on them."""
    others = [area for area in Area if area in areas and area is not Area.SETTINGS]
    return Report(
        [
            Finding(Area.SETTINGS, "valid", problem(error, exit_code=exit_code)),
            *(Finding(area, "all", not_checked("needs valid settings")) for area in others),
        ]
    )
