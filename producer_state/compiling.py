"""How kernels are compiled: at their first call, without the GIL, kept on disk between processes where that is possible.

Trap: numba notices a change in the file of a kernel, not in the files of kernels and constants that are compiled into it. A kernel
that does not fit what calls it writes where it must not. So the names of what is kept have a digest of all these files and numba's
version. In the index it would be too late: numba writes the index before the code, and other code may be there under its name.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Final, Literal, TypeAlias

from numba import __version__, njit

from producer_state.kernel_library import LIBRARY, read_sources

Decorator: TypeAlias = Callable[[Callable[..., Any]], Any]

_DAMAGED: Final = (EOFError, UnpicklingError)
"""What numba raises for a file that is empty or has zeros since the machine failed: it does not sync what it keeps."""


def compilers(*folders: Path) -> tuple[Decorator, Decorator]:
    """What compiles a kernel, and what has it put in the place of each call: an array in a call costs two atomic counts.

    `folders`: of all sources that the kernels are made of, constants included.
    """

    def native(function: Callable[..., Any]) -> Any:
        return _compiled(function, folders, inline="never")

    def native_inline(function: Callable[..., Any]) -> Any:
        return _compiled(function, folders, inline="always")

    return native, native_inline


def _compiled(function: Callable[..., Any], folders: tuple[Path, ...], *, inline: Literal["never", "always"]) -> Any:
    try:
        dispatcher: Any = njit(nogil=True, cache=True, inline=inline)(function)
    except RuntimeError:
        # Neither the package's folder nor the user's cache folder can be written, as on a read-only root file system
        # without NUMBA_CACHE_DIR: each process compiles again, which takes seconds, instead of failing at import.
        return njit(nogil=True, inline=inline)(function)
    kept = dispatcher._cache  # noqa: SLF001 - numba has no public way to survive a full cache disk
    _guard(kept)
    with suppress(FileNotFoundError):  # In a zip file, nothing changes by itself.
        name = f"{kept._impl.filename_base}.{_digest(folders)}"  # noqa: SLF001 - nor to say what else a kernel is made of
        kept._cache_file = type(kept._cache_file)(kept.cache_path, name, kept._impl.locator.get_source_stamp())  # noqa: SLF001
    return dispatcher


@cache
def _digest(folders: tuple[Path, ...]) -> str:
    found = sha256(__version__.encode())
    for source in read_sources(folders):
        found.update(source)
    return found.hexdigest()


def _guard(cached: Any) -> None:
    """A kernel that cannot be kept because the disk is full works in this process all the same.

    Trap: processes that keep kernels of one function for two lists of types at the same time give both the same file. The index
    may then name the types of one, and the file have the code of the other, for good. Such a kernel is compiled again.
    """
    save, load = cached.save_overload, cached.load_overload

    def save_or_not(types: Any, compiled: Any) -> None:
        with suppress(OSError, *_DAMAGED):
            save(types, compiled)

    def load_or_not(types: Any, target: Any) -> Any:
        try:
            found = load(types, target)
        except _DAMAGED:
            with suppress(OSError):
                cached.flush()
            return None
        return found if found is not None and found.signature.args == tuple(types) else None

    cached.save_overload, cached.load_overload = save_or_not, load_or_not


native, native_inline = compilers(*LIBRARY.folders)
"""Of this package."""
