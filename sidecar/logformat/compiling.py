"""How the kernels of this package are compiled; see `producer_state.compiling`."""

from __future__ import annotations

from producer_state.compiling import compilers
from sidecar.logformat.library import LIBRARY

native, native_inline = compilers(*LIBRARY.folders)
