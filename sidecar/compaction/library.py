"""The kernels of compaction as Python calls them, out of the library that was built for them or compiled by numba."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from producer_state.kernel_library import Block, KernelLibrary
from sidecar.logformat.library import LIBRARY as _LOGFORMAT

LIBRARY: Final = KernelLibrary("compaction", [Path(__file__).parent, *_LOGFORMAT.folders], [__name__], calls_max=5_000)
"""Small compressed batches need several calls each."""

_BYTES, _INT16, _INT64, _UINT64 = (Block.of(dtype) for dtype in (np.uint8, np.int16, np.int64, np.uint64))
_ORDINALS = Block.of(np.uint32)
_WIDE, _WORDS, _HALVES, _SMALL = (Block.of(dtype, 2) for dtype in (np.int64, np.int32, np.int16, np.int8))
_ROWS = (_BYTES, None, _WIDE, _WORDS, _HALVES, _SMALL, None, None, _BYTES)
_PRODUCERS = (_INT64, _INT64, _INT16)

_KERNELS: Final = "sidecar.compaction.kernels"
_SCAN, _TABLE, _BATCHES, _REWRITE = (f"{_KERNELS}.{name}" for name in ("scan", "table", "batches", "rewrite"))

scan_rows = LIBRARY.kernel(_SCAN, "scan_rows", [*_ROWS, _INT64], 2)
scan_body = LIBRARY.kernel(_SCAN, "scan_body", [_BYTES, None, _WIDE, _WORDS, _HALVES, None, _INT64], 1)
count_messages = LIBRARY.kernel(_SCAN, "count_messages", [_BYTES, None], 1)
inner_offsets = LIBRARY.kernel(_SCAN, "inner_offsets", [_BYTES, None], 3)
scan_messages = LIBRARY.kernel(_SCAN, "scan_messages", [_BYTES, *[None] * 3, _WIDE, _HALVES, None, _INT64], 1)
judge = LIBRARY.kernel(
    f"{_KERNELS}.judging",
    "judge",
    [_INT64, _INT64, _BYTES, _INT64, _INT64, _BYTES, _INT64, _BYTES, _BYTES, _BYTES, _INT64],
    0,
)

measure_buckets = LIBRARY.kernel(_TABLE, "measure_buckets", [_UINT64, *[None] * 3, _INT64, _INT64], 0)
pack_buckets = LIBRARY.kernel(_TABLE, "pack_buckets", [_UINT64, *[None] * 3, _BYTES, _INT64, _INT64], 0)
insert_blob = LIBRARY.kernel(_TABLE, "insert_blob", [_BYTES, None, _UINT64, *[None] * 4, _UINT64], 0)
count_winners = LIBRARY.kernel(_TABLE, "count_winners", [_UINT64, None, None, _INT64], 1)
gather_winners = LIBRARY.kernel(_TABLE, "gather_winners", [_UINT64, None, None, _INT64, _ORDINALS], 0)
mark = LIBRARY.kernel(_TABLE, "mark", [_BYTES, _ORDINALS], 1)

rewrite_rows = LIBRARY.kernel(_REWRITE, "rewrite_rows", [*_ROWS, _BYTES, *_PRODUCERS, _BYTES, _INT64], 2)
must_stay = LIBRARY.kernel(_REWRITE, "must_stay", [*_PRODUCERS, _WIDE, _HALVES, _SMALL, None, _INT64], 1)
rebuild = LIBRARY.kernel(_BATCHES, "rebuild", [_BYTES, _BYTES, None, _BYTES, None, _BYTES, _INT64], 2)
write_empty = LIBRARY.kernel(_BATCHES, "write_empty", [_BYTES, *[None] * 3, _BYTES], 0)
seal_buffer = LIBRARY.kernel(_BATCHES, "seal_buffer", [_BYTES, None], 0)
