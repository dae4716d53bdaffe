"""How many files `run` may open, each time in a process of its own: the hard limit cannot be raised again."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
from sidecar.host.pinned_files import descriptors_to_hold
from sidecar.host.limits import allow_open_files, allowed_open_files
reported = allowed_open_files()
allow_open_files()
print(reported, *resource.getrlimit(resource.RLIMIT_NOFILE), descriptors_to_hold())
"""


@pytest.mark.parametrize(
    ("soft", "hard", "found"),
    [
        (1024, 16_500, (16_384, 16_384, 16_500, 4096)),
        (1024, 2048, (2048, 2048, 2048, 512)),
        (1024, 1024, (1024, 1024, 1024, 256)),
        (16_400, 16_500, (16_400, 16_400, 16_500, 4096)),
    ],
)
def test_the_soft_limit_is_raised_as_far_as_it_is_wanted_and_allowed(
    soft: int, hard: int, found: tuple[int, ...]
) -> None:
    script = SCRIPT.format(soft=soft, hard=hard)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert tuple(map(int, done.stdout.split())) == found, done.stderr


RUN = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 2048))
from sidecar import daemon
from sidecar.cli.app import app
daemon.run = lambda *_settings, **_more: print(resource.getrlimit(resource.RLIMIT_NOFILE)) or 0
app(["run", "--log-dir", "/nowhere", "--archive", "memory://none", "--bootstrap-server", "127.0.0.1:1"])
"""


def test_run_raises_it() -> None:
    done = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.strip() == "(2048, 2048)", done.stderr
