"""Domain events that a test does not look at."""

from __future__ import annotations

from sidecar.partition.domain_events import DomainEvent


def ignored(_event: DomainEvent) -> None:
    """An `Emit`."""
