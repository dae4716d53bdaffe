"""Snapshot files with the producers that a test wants."""

from __future__ import annotations

from collections.abc import Iterable

from producer_state.snapshot import ProducerEntry
from producer_state.table import ProducerTable


def write_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """The file's bytes. Raises ValueError on doubles."""
    return ProducerTable.from_entries(0, entries).to_snapshot()
