# ruff: noqa: INP001 - scripts of the image build, no package
"""The image's command: the program, with the kernels that were compiled when the image was built.

Kernels are machine code. Compiled for exactly the processor that they run on they are 5 % faster and of no use on another one, and
to compile them takes half a minute of a processor: so they are compiled once for any processor of the architecture. numba
wants to write where it reads: each new place for kernels starts as a copy of the image's.
"""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

KERNELS = Path("/opt/tiered-sidecar/kernels")
_X86_64_V2 = "+64bit,+cmov,+cx16,+cx8,+fxsr,+mmx,+popcnt,+sahf,+sse,+sse2,+sse3,+ssse3,+sse4.1,+sse4.2"
# What numpy asks of a processor, too. Other architectures compile for what they find.
PROCESSORS = {"x86_64": ("x86-64-v2", _X86_64_V2), "aarch64": ("generic", "+neon")}


def main() -> None:
    """Prepare the environment, which workers inherit, and run."""
    name, features = PROCESSORS.get(platform.machine(), ("", ""))
    if name and "NUMBA_CPU_NAME" not in os.environ:
        os.environ |= {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": features}
    place = os.environ.get("NUMBA_CACHE_DIR")
    if place and KERNELS.is_dir() and not Path(place).exists():
        # Without them it only takes longer: a full disk is for the program itself to tell.
        with suppress(OSError):
            _copy_kernels(Path(place))
    from sidecar.cli import main as program

    program()


def _copy_kernels(place: Path) -> None:
    """All or nothing: another process may do the same at the same time."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as name:
        copied = Path(name) / "kernels"
        shutil.copytree(KERNELS, copied, copy_function=shutil.copyfile)
        copied.chmod(0o755)
        copied.rename(place)


if __name__ == "__main__":
    main()
