"""All checks of the areas that are asked for, put together from settings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from sidecar.clock import Clock, SystemClock
from sidecar.config import Settings
from sidecar.doctor.broker import broker_checks
from sidecar.doctor.compaction import compaction_checks
from sidecar.doctor.examining import examine
from sidecar.doctor.findings import Area, Check, Finding, Report, not_checked, problem
from sidecar.doctor.log_dirs import log_dir_checks
from sidecar.doctor.machine import machine_checks
from sidecar.doctor.settings_rules import settings_checks
from sidecar.doctor.store import store_checks

TIMEOUT_S = 30.0


def doctor(
    settings: Settings,
    *,
    areas: Collection[Area] = tuple(Area),
    timeout_s: float = TIMEOUT_S,
    clock: Clock | None = None,
    cleaned: Callable[[str], str] = lambda text: text,
) -> Report:
    """Look at everything that archiving by these settings needs. Raises nothing for what it finds.

    Args:
        timeout_s: for each check.
        cleaned: takes secrets out of a text.
    """
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
            *(Finding(area, "all", not_checked("it needs the settings")) for area in others),
        ]
    )
