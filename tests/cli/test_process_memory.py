"""What a process tells its allocators, each time in a process of its own: there is no way back."""

from __future__ import annotations

import subprocess
import sys

import pytest

ARENAS_OF_THREADS = """
import ctypes, threading
from sidecar.cli.archiving import share_arenas
assert share_arenas() is {shared}
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
gate = threading.Barrier(9)
def take(): libc.malloc(64); gate.wait(); gate.wait()
for _ in range(8): threading.Thread(target=take, daemon=True).start()
gate.wait()
libc.malloc_info(0, ctypes.c_void_p.in_dll(libc, "stdout"))
libc.fflush(None)
gate.wait()
"""


@pytest.mark.parametrize(
    ("chosen", "shared", "arenas"),
    [
        ({}, True, 2),
        ({"MALLOC_ARENA_MAX": "5"}, False, 5),
        ({"GLIBC_TUNABLES": "glibc.malloc.check=0:glibc.malloc.arena_max=5"}, False, 5),
        ({"GLIBC_TUNABLES": "glibc.malloc.check=0"}, True, 2),
    ],
)
def test_threads_share_two_arenas_unless_the_user_chose(chosen: dict[str, str], shared: bool, arenas: int) -> None:
    done = _run(ARENAS_OF_THREADS.format(shared=shared), chosen)
    assert done.count("<heap nr=") == arenas


def test_modules_are_out_of_the_collectors_sight() -> None:
    program = "import gc, sidecar.model; from sidecar.cli.archiving import freeze\nbefore = len(gc.get_objects())\n"
    done = _run(program + "freeze(); print(gc.get_freeze_count() > before // 2, len(gc.get_objects()) < 100)", {})
    assert done.split() == ["True", "True"]


def _run(program: str, environment: dict[str, str]) -> str:
    return subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True, timeout=300
    ).stdout


def test_the_collector_begins_after_the_start_and_is_then_as_usual() -> None:
    program = (
        "import gc; from sidecar.cli import START_OBJECTS, collect_after_start\n"
        "usual = gc.get_threshold(); collect_after_start()\n"
        "print(gc.get_threshold()[0] == START_OBJECTS)\n"
        "kept = [[] for _ in range(START_OBJECTS + 1000)]\n"
        "print(gc.get_threshold() == usual, gc.get_freeze_count() > START_OBJECTS, gc.callbacks)\n"
    )
    done = _run(program, {})
    assert done.split() == ["True", "True", "True", "[]"]


def test_numpy_starts_no_threads_of_its_own() -> None:
    """They spin while they wait: a twentieth of a CPU second of each start."""
    program = (
        "import sys; sys.argv = ['tiered-sidecar', '--version']\n"
        "from sidecar.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "import numpy, os; print(len(os.listdir('/proc/self/task')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.splitlines()[-1] == "1"


def test_a_process_ends_without_a_search_for_cycles() -> None:
    program = (
        "import atexit, gc, sys; from sidecar.cli import main\n"
        "sys.argv = ['tiered-sidecar', 'version']\n"
        "atexit.register(lambda: print(len(gc.get_objects()) < gc.get_freeze_count() // 10))\n"
        "main()\n"
    )
    assert _run(program, {}).split()[-1] == "True"
