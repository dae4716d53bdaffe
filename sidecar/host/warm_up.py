"""Loads the compiled kernels in the background, while the store is probed: half a second that need not be waited for."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from producer_state.replay import replay
from producer_state.table import ProducerTable
from sidecar.logformat.batches import scan_bytes


@contextmanager
def warming_up() -> Iterator[None]:
    """The kernels are loaded when the block is left. A fault of theirs is raised then."""
    with ThreadPoolExecutor(1, thread_name_prefix="warm-up") as pool:
        loaded = pool.submit(_load_kernels)
        yield
        loaded.result()


def _load_kernels() -> None:
    """Walk a batch without records, such as compaction leaves, and follow its producer: that calls every kernel once."""
    from sidecar.logformat.bodies.building import build_empty_batch  # It loads codecs, which `run` does not need.

    batch = build_empty_batch(base_offset=0, last_offset=0, producer_id=1, producer_epoch=0, base_sequence=0)
    for columns in scan_bytes(batch, base_offset=0):
        replay(ProducerTable.blank(0), columns.facts())
