"""Sinks of domain events: log lines, and the status model that `sidecar.http` renders. So is `Metrics`. They decide nothing."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sidecar.partition.domain_events import DomainEvent, Emit


def fan_out(*sinks: Emit) -> Emit:
    """One `Emit` for several sinks, which get each event in this order; the log comes last.

    A sink that cannot write (OSError), such as a log whose stderr is closed, keeps the event from no other sink. Nor does it end
    the work that the event is about.
    """

    def emit(event: DomainEvent) -> None:
        for sink in sinks:
            with suppress(OSError):
                sink(event)

    return emit
