"""Symbolic batches as headers, for the product's own search for markers that a cleaner took; and the markers that it adds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Final
from unittest.mock import patch

import numpy as np

from sidecar.logformat.batches import BatchColumns, scan_bytes
from sidecar.logformat.bodies.building import build_empty_batch, build_marker
from sidecar.segment import added_markers, transaction_batches
from tests.simulation.batches import BATCH_BYTES, Batch, encode

ADDED: Final = 1 << 30
"""In the content of markers that are in no broker's log."""


@lru_cache(maxsize=1 << 13)
def _with_header(batch: Batch) -> bytes:
    """The batch as a broker would write it, but for its records."""
    by = {"producer_id": batch.producer_id, "producer_epoch": batch.producer_epoch, "leader_epoch": batch.leader_epoch}
    if batch.commits is not None:
        ends = {"commit": batch.commits, "coordinator_epoch": 0, "timestamp_ms": batch.timestamp_ms}
        return build_marker(batch.base_offset, **by, **ends)
    return build_empty_batch(
        base_offset=batch.base_offset,
        last_offset=batch.last_offset,
        max_timestamp_ms=batch.timestamp_ms,
        base_sequence=batch.base_sequence,
        transactional=batch.transaction >= 0,
        **by,
    )


def headers_of(batches: Sequence[Batch]) -> Iterator[BatchColumns]:
    """With the positions of symbolic batches."""
    for columns in scan_bytes(b"".join(map(_with_header, batches))):
        rows = np.arange(len(columns))
        yield replace(columns, position=rows * BATCH_BYTES, size_bytes=np.full_like(columns.size_bytes, BATCH_BYTES))


class _Headers(list[BatchColumns]):
    def require_exact(self) -> None:
        """Symbolic batches are never damaged."""


@contextmanager
def searching(
    batches_in: Callable[[Path], list[Batch]], opened: Sequence[Batch], transactions: Mapping[int, int]
) -> Iterator[None]:
    """The search reads symbolic batches while this lasts. `opened`: of the segment. `transactions`: by producer, the open one."""

    def scan_file(path: Path, **_options: object) -> _Headers:
        return _Headers(headers_of(batches_in(path)))

    def added(offset: int, *, commit: bool, leader_epoch: int, timestamp_ms: int, **given: int) -> bytes:
        del given["coordinator_epoch"]
        number = transactions[given["producer_id"]]
        batch = Batch(
            offset, offset + 1, leader_epoch, ADDED | number, timestamp_ms, transaction=number, commits=commit
        )
        return encode([replace(batch, **given)])

    with (
        patch.multiple(
            added_markers,
            ListedFile=lambda *_: None,
            SegmentScanner=lambda *_, **__: headers_of(opened),
            scan_file=scan_file,
            build_marker=added,
        ),
        patch.object(transaction_batches, "scan_file", scan_file),
    ):
        yield
