"""Loads the compiled kernels in the background, while the store is probed: half a second that need not be waited for."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from crc32c import crc32c

from producer_state.replay import replay
from producer_state.table import ProducerTable
from sidecar.logformat.batches import scan_bytes

_HEAD = struct.Struct(">qiibI")
_BODY = struct.Struct(">hiqqqhii")
_SIZE_BYTES = 12
"""Base offset and size field, which the size field does not count."""


@contextmanager
def warming_up() -> Iterator[None]:
    """The kernels are loaded when the block is left. A fault of theirs is raised then."""
    with ThreadPoolExecutor(1, thread_name_prefix="warm-up") as pool:
        loaded = pool.submit(_load_kernels)
        yield
        loaded.result()


def _load_kernels() -> None:
    """Walk a batch without records, such as compaction leaves, and follow its producer: that calls every kernel once."""
    body = _BODY.pack(0, 0, -1, -1, 1, 0, 0, 0)
    head = _HEAD.pack(0, _HEAD.size - _SIZE_BYTES + len(body), 0, 2, crc32c(body))
    for columns in scan_bytes(head + body, base_offset=0):
        replay(ProducerTable.blank(0), columns.facts())
