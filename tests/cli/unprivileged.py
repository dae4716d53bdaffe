"""Runs the product without root's right to pass over the mode bits of files, so that they mean what they say."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cli import running
from tests.cli.running import ROOT, TIMEOUT_S, Outcome, environment

PROGRAM = """
import ctypes, os, sys
PR_CAPBSET_DROP, DAC_OVERRIDE, DAC_READ_SEARCH = 24, 1, 2
if os.geteuid() == 0:
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in (DAC_OVERRIDE, DAC_READ_SEARCH):
        if libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0):
            sys.exit(f"cannot drop a capability: {os.strerror(ctypes.get_errno())}")
os.execv(sys.executable, [sys.executable, "-m", "sidecar", *sys.argv[1:]])
"""


def tiered_sidecar(*arguments: str | Path) -> Outcome:
    """Run to the end."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *(str(argument) for argument in arguments)],
        capture_output=True,
        check=False,
        timeout=TIMEOUT_S,
        cwd=ROOT,
        env=environment(),
    )
    return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())


_VERSION_3 = 0x20080522
_PASSES_OVER_MODES = (1 << 1) | (1 << 2)
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH."""


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Set(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


@contextmanager
def _mode_bits_hold() -> Iterator[None]:
    """For this thread and those that it starts: Linux keeps capabilities by thread."""
    libc, header, sets = ctypes.CDLL(None, use_errno=True), _Header(_VERSION_3, 0), (_Set * 2)()

    def call(function: str) -> None:
        if getattr(libc, function)(ctypes.byref(header), sets):
            raise OSError(ctypes.get_errno(), function)

    call("capget")
    before = sets[0].effective
    sets[0].effective = before & ~_PASSES_OVER_MODES
    call("capset")
    try:
        yield
    finally:
        sets[0].effective = before
        call("capset")


def in_this_process(*arguments: str | Path) -> Outcome:
    """The same without a process of its own. access(2) takes no notice of it: commands that call that need one."""
    with _mode_bits_hold():
        return running.in_this_process(*arguments)
