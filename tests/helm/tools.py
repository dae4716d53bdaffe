"""Brings helm, helm-docs, helm-unittest (built by Go from `tests/servers/gomodules/helm`) and promtool (Debian's package).

They are kept in the tests' cache, like the servers' programs.
"""

from __future__ import annotations

import shutil
import tempfile
from functools import cache
from pathlib import Path

from tests.servers.dist import bring, cache_directory, go_module_programs, locked
from tests.servers.process import ServerError

# Helm that is built without its Makefile thinks it talks to Kubernetes 1.20.
_LINKER_FLAGS = " ".join(
    f"-X helm.sh/helm/v3/pkg/{package}.k8sVersion{part}={number}"
    for package in ("chartutil", "lint/rules")
    for part, number in (("Major", 1), ("Minor", 37))
)


@cache
def go_tool(name: str) -> Path:
    """The path of one of the programs. Raises ServerError."""
    return go_module_programs("helm", _LINKER_FLAGS) / name


@cache
def promtool() -> Path:
    """The path of promtool: the one on PATH, else out of Debian's package `prometheus`, unpacked and not installed."""
    found = shutil.which("promtool")
    if found is not None:
        return Path(found)
    target = cache_directory() / "bin" / "promtool"
    with locked("promtool"):
        if not target.exists():
            if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
                raise ServerError(
                    "'promtool' is not on PATH, and this is no Debian to take it from: install Prometheus"
                )
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=target.parent) as name:
                unpacked = Path(name)
                # As root apt would download as another user, who may not write here.
                unpacked.chmod(0o777)
                try:
                    bring("promtool", ["apt-get", "download", "prometheus"], directory=unpacked)
                except ServerError:
                    # Fresh machines and slim images come without lists of packages.
                    bring("promtool", ["apt-get", "update", "-qq"], directory=unpacked)
                    bring("promtool", ["apt-get", "download", "prometheus"], directory=unpacked)
                (package,) = unpacked.glob("prometheus_*.deb")
                bring("promtool", ["dpkg-deb", "-x", str(package), "content"], directory=unpacked)
                shutil.move(unpacked / "content" / "usr" / "bin" / "promtool", target)
    return target
