"""Runs the product without root's right to pass over the mode bits of files, so that they mean what they say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
