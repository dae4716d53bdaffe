# ruff: noqa: INP001 - scripts of the image build, no package
"""The image's command: the program, with the kernels that were compiled when the image was built.

Kernels are machine code. Compiled for exactly the processor that they run on they are 5 % faster and of no use on another one, and
to compile them takes half a minute of a processor: so they are compiled once for any processor of the architecture. numba
wants to write where it reads: each new place for kernels starts as a copy of the image's.
"""

from __future__ import annotations

import os
import platform
import pwd
import shutil
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

KERNELS = Path("/opt/tiered-sidecar/kernels")
NAMES = "libnss_wrapper.so"
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
    # Commands that start no JVM work without a name.
    with suppress(OSError):
        _name_user(Path(tempfile.gettempdir()))
    from sidecar.cli import main as program

    program()


def _name_user(place: Path) -> None:
    """Spark's JVM needs the name of its user. OpenShift runs pods as a user ID without one, and /etc/passwd is read-only: this
    program starts again with a library that reads another file."""
    user = os.getuid()
    try:
        pwd.getpwuid(user)
    except KeyError:
        names = place / f"passwd-{user}"
        variables = {"LD_PRELOAD": NAMES, "NSS_WRAPPER_PASSWD": str(names), "NSS_WRAPPER_GROUP": "/etc/group"}
        if variables.items() <= os.environ.items():
            return  # it is loaded, and does not help
        line = f"kafka{user}:x:{user}:{os.getgid()}:tiered-sidecar:/tmp:/usr/sbin/nologin\n"
        with tempfile.NamedTemporaryFile("w", dir=place, delete=False) as file:
            file.write(Path("/etc/passwd").read_text(encoding="utf-8") + line)
        Path(file.name).rename(names)
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **variables})  # noqa: S606 - this program, no shell


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
