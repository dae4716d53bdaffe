"""Compiles kernels into a shared library for `kernel_library`: numba writes LLVM's code, LLVM an object file, `ld` the library."""

from __future__ import annotations

import os
import shutil
import subprocess
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import llvmlite.binding as llvm
import numba
import numpy as np
from numba.core import config

from producer_state.kernel_library import Kernel, KernelLibrary, Parameter

LINKERS: Final = ("ld", "ld.lld")
_DESTRUCTOR: Final = "define void @NRT_MemInfo_call_dtor(ptr %0) {\n  unreachable\n}\n"
"""numba's own runtime would free arrays with it. No array that a kernel is given has an owner: it is never called."""

_BITS: Final = 64
_OPTIONS: Final[dict[str, Any]] = {"nogil": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def build(library: KernelLibrary) -> Path | None:
    """Build the library where it belongs, unless it is there and can be loaded; None if this machine has no linker.

    Also has numba keep its own form of each kernel: executors of a cluster, and other users, do not see this user's cache.
    Raises OSError if it cannot be written, CalledProcessError if the linker fails.
    """
    for module in library.modules:
        import_module(module)
    for kernel in library.kernels:
        dispatcher: Any = kernel.compiled
        dispatcher.compile(_types_of(kernel))
    path = library.path()
    linker = next(filter(None, map(shutil.which, LINKERS)), None)
    is_built = path.exists() and library.loaded is not None
    if is_built or linker is None:
        return path if is_built else None
    path.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=path.parent) as name:
        compiled, linked = Path(name) / "kernels.o", Path(name) / "kernels.so"
        compiled.write_bytes(_object_code(library))
        subprocess.run(
            [linker, "-shared", "-z", "noexecstack", "-o", linked, compiled], check=True, capture_output=True
        )
        linked.chmod(0o755)
        with linked.open("rb") as whole:
            # Where the machine stops, a file may be left of which a part is missing: it ends each process that loads it.
            os.fsync(whole.fileno())
        # Another process may do the same: each has a whole file, and one of them stays.
        linked.replace(path)
    return path


def _object_code(library: KernelLibrary) -> bytes:
    whole = llvm.parse_assembly(_DESTRUCTOR)
    for kernel in library.kernels:
        whole.link_in(_module_of(kernel))
    whole.verify()
    target = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(
        cpu=config.CPU_NAME or llvm.get_host_cpu_name(),  # type: ignore[attr-defined]  # named at run time
        features=llvm.get_host_cpu_features().flatten() if config.CPU_FEATURES is None else config.CPU_FEATURES,  # type: ignore[attr-defined]
        opt=3,
        reloc="pic",
        codemodel="default",
    )
    code: bytes = target.emit_object(whole)
    return code


def _module_of(kernel: Kernel) -> Any:
    # Not the dispatcher itself: what numba has loaded from its cache it cannot show.
    dispatcher: Any = kernel.compiled
    function = numba.njit(**_OPTIONS)(dispatcher.py_func)
    function.compile(_types_of(kernel))
    ((signature, compiled),) = function.overloads.items()
    _require_results(kernel, compiled.signature.return_type)
    module = llvm.parse_assembly(function.inspect_llvm(signature))
    module.get_function(compiled.fndesc.llvm_func_name).name = kernel.symbol
    return module


def _types_of(kernel: Kernel) -> tuple[Any, ...]:
    return tuple(map(_type_of, kernel.parameters))


def _type_of(parameter: Parameter) -> Any:
    if parameter is None:
        return numba.types.int64
    return numba.typeof(np.empty((1,) * parameter.dimensions, parameter.dtype))  # type: ignore[no-untyped-call]


def _require_results(kernel: Kernel, found: Any) -> None:
    """What `Kernel` reads must be what the kernel writes. Raises TypeError."""
    types: Any = numba.types
    one = isinstance(found, types.Integer) and (found.bitwidth == _BITS or not found.signed)
    one = one or found == types.boolean
    declared = {0: found == types.none, 1: one}.get(
        kernel.results, found == types.UniTuple(types.int64, kernel.results)
    )
    if not declared:
        raise TypeError(f"kernel {kernel.symbol} returns {found}, expected {kernel.results} integers")
