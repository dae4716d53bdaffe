"""The walks over batch headers, out of the library that was built for them or compiled by numba; see `kernel_library`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

import producer_state
from producer_state.kernel_library import Block, KernelLibrary

LIBRARY: Final = KernelLibrary("logformat", [Path(__file__).parent, Path(producer_state.__file__).parent], [__name__])

_BUFFER = Block.of(np.uint8)
_BLOCKS = (Block.of(np.int64, 2), Block.of(np.int32, 2), Block.of(np.int16, 2), Block.of(np.int8, 2))

walk_batches = LIBRARY.kernel(
    "sidecar.logformat.kernels", "walk_batches", [_BUFFER, *[None] * 3, *_BLOCKS, *[None] * 7], 6
)
walk_file = LIBRARY.kernel(
    "sidecar.logformat.kernels_reading", "walk_file", [*[None] * 3, _BUFFER, *[None] * 3, *_BLOCKS, *[None] * 7], 8
)
checksum = LIBRARY.kernel("sidecar.logformat.crc.crc32c", "checksum", [None, _BUFFER, None], 1)
