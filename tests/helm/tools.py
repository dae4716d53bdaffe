"""Brings helm, helm-docs, helm-unittest (built by Go from `gotools/`, every module by hash) and promtool (Debian's package).

They are kept in the tests' cache beside the other servers' programs, under a name with the hash of what they were made from.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from functools import cache
from pathlib import Path

from tests.servers.dist import bring, cache_directory, locked, tool
from tests.servers.process import ServerError

MODULE = Path(__file__).parent / "gotools"
_GO_TOOLS = ("helm", "helm-docs", "helm-unittest")
# Helm that is built without its Makefile thinks it talks to Kubernetes 1.20.
_LINKER_FLAGS = " ".join(
    ["-s", "-w"]
    + [
        f"-X helm.sh/helm/v3/pkg/{package}.k8sVersion{part}={number}"
        for package in ("chartutil", "lint/rules")
        for part, number in (("Major", 1), ("Minor", 37))
    ]
)
# They run for a moment each and are compiled on every fresh machine: without optimising them that takes two thirds of the time.
_COMPILER_FLAGS = "all=-N -l -dwarf=false"


@cache
def go_tool(name: str) -> Path:
    """The path of one of the programs of `gotools/go.mod`. Raises ServerError."""
    made_from = hashlib.sha256(
        (MODULE / "go.mod").read_bytes() + (_LINKER_FLAGS + _COMPILER_FLAGS).encode()
    ).hexdigest()[:12]
    folder = cache_directory() / "bin" / f"helm-tools-{made_from}"
    with locked("helm-tools"):
        if not folder.exists():
            folder.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder.parent) as building:
                flags = ["-mod=readonly", f"-ldflags={_LINKER_FLAGS}", f"-gcflags={_COMPILER_FLAGS}"]
                bring(
                    "Helm and its tools", [tool("go"), "build", *flags, "-o", f"{building}/", "tool"], directory=MODULE
                )
                missing = [program for program in _GO_TOOLS if not (Path(building) / program).exists()]
                if missing:
                    raise ServerError(f"go build in {MODULE} made no {', '.join(missing)}")
                shutil.copytree(building, folder)
    return folder / name


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
