"""How kernels are compiled: at their first call, without the GIL, kept on disk between processes where that is possible.

Trap: numba notices a change in the file of a kernel, not in the files of kernels it calls. `make kernels` removes the `*.nbi` files
next to the modules after a change; those below NUMBA_CACHE_DIR are yours to remove.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal

from numba import njit


def native(function: Callable[..., Any]) -> Any:
    return _compiled(function, inline="never")


def native_inline(function: Callable[..., Any]) -> Any:
    """The same, put in the place of each call: arrays that are handed to a call cost two atomic counts each."""
    return _compiled(function, inline="always")


def _compiled(function: Callable[..., Any], *, inline: Literal["never", "always"]) -> Any:
    try:
        dispatcher: Any = njit(nogil=True, cache=True, inline=inline)(function)
    except RuntimeError:
        # Neither the package's folder nor the user's cache folder can be written, as on a read-only root file system
        # without NUMBA_CACHE_DIR: each process compiles again, which takes seconds, instead of failing at import.
        return njit(nogil=True, inline=inline)(function)
    _keep_if_possible(dispatcher._cache)  # noqa: SLF001 - numba has no public way to survive a full cache disk
    return dispatcher


def _keep_if_possible(cache: Any) -> None:
    """A kernel that cannot be kept because the disk is full works in this process all the same."""
    save = cache.save_overload

    def save_or_not(signature: Any, compiled: Any) -> None:
        with suppress(OSError):
            save(signature, compiled)

    cache.save_overload = save_or_not
