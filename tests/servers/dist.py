"""Brings the servers' files, once, by the ordinary clients of Maven and Go, into a cache below the repository root.

The cache is `.cache/` (git-ignored); the environment variable SIDECAR_TEST_CACHE names another directory. (Of variables that
begin with its own name the program takes settings only.)
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests.servers.process import ServerError

KAFKA_VERSIONS = ("2.7.2", "3.9.1", "4.3.0")
POMS = Path(__file__).parent / "poms"
_BRING_TIMEOUT_S = 1200.0
_GO_PACKAGES = {
    "versitygw": "github.com/versity/versitygw/cmd/versitygw@v1.8.0",
    # The last version whose create-only puts are not atomic: of two at once both may succeed.
    "versitygw-racy": "github.com/versity/versitygw/cmd/versitygw@v1.7.0",
    "toxiproxy-server": "github.com/Shopify/toxiproxy/v2/cmd/server@v2.12.0",
}
_DEBIAN_PACKAGES = {"java": "openjdk-17-jdk-headless", "mvn": "maven", "go": "golang-go (1.25 or newer)"}


def cache_directory() -> Path:
    """Where brought files are kept; created when absent."""
    configured = os.environ.get("SIDECAR_TEST_CACHE")
    path = Path(configured) if configured else Path(__file__).resolve().parents[2] / ".cache"
    path.mkdir(parents=True, exist_ok=True)
    return path


def tool(name: str) -> str:
    """The path of java, mvn or go. Raises ServerError that names the package to install."""
    found = shutil.which(name)
    if found is None:
        raise ServerError(f"'{name}' is not on PATH; on Debian or Ubuntu install the package {_DEBIAN_PACKAGES[name]}")
    return found


@cache
def kafka_libs(version: str) -> Path:
    """The directory with the jars of a broker, its tools and clients. Raises ServerError."""
    pom = POMS / f"{version}.xml"
    if not pom.exists():
        raise ServerError(f"no pom for Kafka {version}; known: {', '.join(KAFKA_VERSIONS)}")
    libs = cache_directory() / "kafka" / version / "libs"
    with locked(f"kafka-{version}"):
        # The marker is a copy of the pom: jars of an older pom, or of an interrupted run, are brought again.
        marker = libs / "pom.xml"
        if not marker.exists() or marker.read_bytes() != pom.read_bytes():
            shutil.rmtree(libs, ignore_errors=True)
            goal = ["dependency:copy-dependencies", f"-DoutputDirectory={libs}"]
            bring(f"Kafka {version}", [tool("mvn"), "-q", "-B", "-f", str(pom), *goal])
            shutil.copyfile(pom, marker)
    return libs


@cache
def go_binary(name: str) -> Path:
    """The path of `versitygw` or `toxiproxy-server`. Raises ServerError."""
    package = _GO_PACKAGES[name]
    target = cache_directory() / "bin" / f"{name}-{package.rpartition('@')[2]}"
    with locked(name):
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=target.parent) as gobin:
                bring(package, [tool("go"), "install", package], {"GOBIN": gobin})
                (built,) = Path(gobin).iterdir()
                built.rename(target)
    return target


@contextmanager
def locked(name: str) -> Iterator[None]:
    """While nobody else brings this. Other tests, and other runs of them, wait."""
    with (cache_directory() / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def bring(
    what: str, command: Sequence[str], environment: Mapping[str, str] | None = None, directory: Path | None = None
) -> None:
    """Run a client of a registry. Raises ServerError with the end of what it said."""
    merged = {**os.environ, **(environment or {})}
    try:
        done = subprocess.run(
            command, cwd=directory, env=merged, capture_output=True, text=True, timeout=_BRING_TIMEOUT_S
        )
    except subprocess.TimeoutExpired as error:
        raise ServerError(f"bringing {what} took more than {_BRING_TIMEOUT_S:.0f} s: {command}") from error
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        raise ServerError(f"bringing {what} failed with status {done.returncode}: {command}\n{tail}")
