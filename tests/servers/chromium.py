"""The browser of the tests: Debian's Chromium. Where it is missing, root installs it by apt."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache

from tests.servers.dist import locked
from tests.servers.process import ServerError

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
PACKAGES = ("chromium", "fonts-inter")
_TIMEOUT_S = 900.0


@cache
def chromium() -> str:
    """The path of a Chromium. Raises ServerError, which says what to install, where there is none and we may not install it."""
    with locked("chromium"):
        found = _on_path()
        if found is None:
            _install()
            found = _on_path()
    if found is None:
        raise ServerError(
            f"the packages {' '.join(PACKAGES)} were installed, but brought none of {', '.join(PROGRAMS)}"
        )
    return found


def _on_path() -> str | None:
    return next((path for name in PROGRAMS if (path := shutil.which(name))), None)


def _install() -> None:
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise ServerError(
            f"no Chromium on PATH for the tests of the status page: install it (Debian: apt-get install {' '.join(PACKAGES)})"
        )
    install = ["apt-get", "install", "-y", "-q", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=600", *PACKAGES]
    if _run(install).returncode != 0:
        # Fresh machines and slim images come without lists of packages.
        _run(["apt-get", "update", "-q"])
        done = _run(install)
        if done.returncode != 0:
            tail = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
            raise ServerError(f"{' '.join(install)} ended with status {done.returncode}:\n{tail}")


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
