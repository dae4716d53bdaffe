"""Sinks of domain events: log lines, metrics, and the status model that `sidecar.http` renders. They decide nothing."""

from sidecar.partition.domain_events import DomainEvent, Emit


def fan_out(*sinks: Emit) -> Emit:
    """One `Emit` for several sinks, which get each event in this order."""

    def emit(event: DomainEvent) -> None:
        for sink in sinks:
            sink(event)

    return emit
