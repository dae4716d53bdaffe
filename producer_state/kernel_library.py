"""Kernels from a shared library that was built beforehand: without numba and LLVM, half a second and 110 MB of each process.

`kernel_build` compiles the library from the same kernels. Where there is none for these sources and this processor, or a call does
not fit it, numba compiles the kernel when it is first called.
"""

from __future__ import annotations

import ctypes
import logging
import math
import os
import platform
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

_CPU_FACTS: Final = Path("/proc/cpuinfo")
_CPU_FACTS_BYTES: Final = 8192
_CPU_FLAGS: Final = (b"flags", b"Features")
"""What Linux calls the line, on x86 and on ARM."""
_TARGET_VARIABLES: Final = ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES")
_WORD: Final = ctypes.c_int64
_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Block:
    """A parameter that is a C-contiguous array."""

    dtype: np.dtype[Any]
    dimensions: int = 1

    @classmethod
    def of(cls, dtype: npt.DTypeLike, dimensions: int = 1) -> Block:
        return cls(np.dtype(dtype), dimensions)

    def fits(self, value: Any) -> bool:
        return bool(value.dtype == self.dtype and value.ndim == self.dimensions and value.flags.c_contiguous)


@dataclass(frozen=True, slots=True)
class Prepared:
    """An array for many calls: to read what a kernel must know of four takes longer than the rest of a call."""

    array: npt.NDArray[Any]
    words: tuple[ctypes.c_int64, ...]

    @classmethod
    def of(cls, array: npt.NDArray[Any]) -> Prepared:
        return cls(array, tuple(map(_WORD, _words_of(array))))


def _words_of(array: npt.NDArray[Any]) -> tuple[int, ...]:
    """As numba's compiled functions take it.

    Trap: an array is its memory's owner, twice, before its sizes and its address. Without one nothing is counted.
    """
    return 0, 0, array.size, array.itemsize, array.__array_interface__["data"][0], *array.shape, *array.strides


def read_sources(folders: Iterable[Path]) -> Iterator[bytes]:
    """All sources in these folders, always in the same order. Raises OSError, FileNotFoundError where there are none."""
    sources = [source for folder in folders for source in sorted(folder.rglob("*.py"))]
    if not sources:
        # As where the package lies in a zip file: all releases would seem to be one.
        raise FileNotFoundError(f"no sources in {', '.join(map(str, folders))}")
    for source in sources:
        yield source.read_bytes()


Parameter = Block | None
"""None: an integer of 64 bits."""


class KernelLibrary:
    """The kernels of one package, declared where they are called.

    Args:
        name: of the file, without its digest.
        folders: of all sources that the kernels are made of, constants included.
        modules: that declare kernels.
        calls_max: of a kernel, out of the library. Then numba has it: half a second once, and a call takes a twentieth.
    """

    def __init__(
        self, name: str, folders: Sequence[Path], modules: Sequence[str], *, calls_max: float = math.inf
    ) -> None:
        self.name = name
        self.calls_max = calls_max
        self.modules = modules
        self.kernels: list[Kernel] = []
        self.folders = folders

    def kernel(
        self, module: str, function: str, parameters: Sequence[Parameter], results: int, kind: str = ""
    ) -> Kernel:
        """Declare a kernel.

        Args:
            module: imported only where numba must compile the kernel.
            results: how many integers it returns. They have 64 bits, or one has fewer and no sign.
            kind: distinguishes kernels of one function for several types.
        """
        found = Kernel(self, module, function, tuple(parameters), results, function + kind)
        self.kernels.append(found)
        return found

    def path(self, environment: Mapping[str, str] = os.environ) -> Path:
        """Where the library for these sources and this processor belongs, whether it is there or not. Raises OSError."""
        found = sha256(f"{platform.machine()}\n".encode() + _target(environment))
        for source in read_sources(self.folders):
            found.update(source)
        return cache_folder(environment) / f"{self.name}-kernels-{found.hexdigest()[:16]}.so"

    @cached_property
    def loaded(self) -> ctypes.CDLL | None:
        """None where there is none that can be loaded, or others than us and root may have written it. Logs why, once."""
        try:
            return _load(self.path())
        except (OSError, RuntimeError) as error:  # RuntimeError: there is no home directory.
            _log.warning(
                "no kernel library for %s: %s; this process starts half a second later and takes 110 MB more; "
                "`tiered-sidecar prepare` builds the library",
                self.name,
                error,
            )
            return None


def _load(path: Path) -> ctypes.CDLL:
    """Raises OSError, also where others than us and root may have written it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # A pipe would wait.
    try:
        _require_ours(path, os.fstat(descriptor))
        # The file that was checked, whatever has its name by now in a folder that others can write. Trap: it stays open.
        # The dynamic linker takes another file under the same name, here that of the descriptor, for the one it has.
        return ctypes.CDLL(f"/proc/self/fd/{descriptor}")
    except OSError:
        os.close(descriptor)
        raise


def _require_ours(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(f"{path} is not a regular file")
    if status.st_uid not in {0, os.geteuid()} or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise OSError(f"{path} can be written by users other than root and the user of this process")


def _target(environment: Mapping[str, str]) -> bytes:
    """What decides which instructions a compiler may use. Of a name or features alone, this processor gives numba the other."""
    name, features = map(environment.get, _TARGET_VARIABLES)
    named = f"{name or ''}\n{features or ''}\n".encode()
    if name and (features is not None or name.lower() == "generic"):
        return named
    # On Linux it has a page per processor.
    with _CPU_FACTS.open("rb", buffering=0) as file:
        lines = file.read(_CPU_FACTS_BYTES).splitlines()
    return named + next((line for line in lines if line.startswith(_CPU_FLAGS)), b"")


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Ours in the user's cache; it may not exist. Raises RuntimeError where there is no home directory."""
    configured = environment.get("XDG_CACHE_HOME")
    return (Path(configured) if configured else Path("~/.cache").expanduser()) / "tiered-sidecar"


@dataclass(eq=False)
class Kernel:
    """A function over arrays and integers; the GIL is released while it runs. Made by `KernelLibrary.kernel`."""

    library: KernelLibrary
    module: str
    function: str
    parameters: tuple[Parameter, ...]
    results: int
    symbol: str
    calls: int = 0

    def __call__(self, *arguments: Any) -> Any:
        """None, an integer, or a tuple of integers. Bounds are the caller's. An array may be `Prepared`."""
        self.calls += 1
        native = None if self.calls > self.library.calls_max else self._native
        words = None if native is None else self._words(arguments)
        if native is None or words is None:
            return self.compiled(*map(_for_numba, self.parameters, arguments))
        results, problem = (_WORD * max(self.results, 1))(), ctypes.c_void_p()
        if native(results, ctypes.byref(problem), *words):
            raise RuntimeError(f"kernel {self.symbol} failed")
        return tuple(results) if self.results > 1 else results[0] if self.results else None

    @cached_property
    def compiled(self) -> Callable[..., Any]:
        """By numba."""
        found: Callable[..., Any] = getattr(import_module(self.module), self.function)
        return found

    @cached_property
    def _native(self) -> Any:
        """Out of the library."""
        found = None if self.library.loaded is None else getattr(self.library.loaded, self.symbol, None)
        if found is not None:
            widths = (1 if one is None else 5 + 2 * one.dimensions for one in self.parameters)
            found.argtypes = [ctypes.c_void_p, ctypes.c_void_p, *[_WORD] * sum(widths)]
            found.restype = ctypes.c_int32
        return found

    def _words(self, arguments: Sequence[Any]) -> list[int | ctypes.c_int64] | None:
        """The arguments as numba's compiled functions take them; None if an array is not as declared."""
        words: list[int | ctypes.c_int64] = []
        for parameter, value in zip(self.parameters, arguments, strict=True):
            if parameter is None:
                words.append(int(value))
                continue
            is_prepared = isinstance(value, Prepared)
            if not parameter.fits(value.array if is_prepared else value):
                return None
            words += value.words if is_prepared else _words_of(value)
        return words


def _for_numba(parameter: Parameter, value: Any) -> Any:
    if parameter is None:
        return int(value)
    return value.array if isinstance(value, Prepared) else value


LIBRARY: Final = KernelLibrary(
    "producer-state", [Path(__file__).parent], ["producer_state.digest", "producer_state.replay"]
)
"""Of this package."""
