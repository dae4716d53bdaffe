"""Brings the servers' files, once, by the ordinary clients of Maven, Go, Cargo and pip, into a cache below the repository root.

The cache is `.cache/` (git-ignored); the environment variable SIDECAR_TEST_CACHE names another directory. (Of variables that
begin with its own name the program takes settings only.)
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from tests.servers.process import ServerError

KAFKA_VERSIONS = ("2.7.2", "3.9.1", "4.3.0", "4.4.0")
NEWEST_KAFKA = KAFKA_VERSIONS[-1]
POMS = Path(__file__).parent / "poms"
_BRING_TIMEOUT_S = 1200.0
# C1 and the serial collector: Maven lives for seconds, most of which a JVM otherwise spends on compiling Maven.
_MAVEN_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_GO_PACKAGES = {
    "versitygw": "github.com/versity/versitygw/cmd/versitygw@v1.8.0",
    "toxiproxy-server": "github.com/Shopify/toxiproxy/v2/cmd/server@v2.12.0",
    "gofakes3": "github.com/johannesboyne/gofakes3/cmd/gofakes3@v1.2.0",
    "minio": "github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c",
    "rclone": "github.com/rclone/rclone@v1.76.0",
    "helm-4": "helm.sh/helm/v4/cmd/helm@v4.2.4",
}
_GO_MODULES = Path(__file__).parent / "gomodules"
# They are compiled on every fresh machine: without optimising them that takes half the time. What servers compute much is
# assembly anyway. With the same flags all share the standard library. What is measured is optimised.
_COMPILER_FLAGS = ("-gcflags=all=-N -l -dwarf=false",)
_LINKER_FLAGS = "-ldflags=-s -w"
_CARGO_PACKAGES = {"s3s-fs": ["s3s-fs@0.14.1", "--features", "binary"]}
_CRATES = Path(__file__).parent / "crates"
_PYTHON_PACKAGES = {
    "ministack": "ministack==1.5.33",
    "aws": "awscli==1.46.3",
    "check-jsonschema": "check-jsonschema==0.39.0",
    "cyclonedx-py": "cyclonedx-bom==7.5.0",
    "pyproject-build": "build==1.6.1 setuptools==84.0.0",
    "twine": "twine==7.0.0",
}
_DEBIAN_PACKAGES = {
    "java": "openjdk-17-jdk-headless",
    "javac": "openjdk-17-jdk-headless",
    "mvn": "maven",
    "go": "golang-go (1.25 or newer)",
    "cargo": "cargo (1.85 or newer, or rustup)",
}


def cache_directory() -> Path:
    """Where brought files are kept; created when absent."""
    configured = os.environ.get("SIDECAR_TEST_CACHE")
    path = Path(configured) if configured else Path(__file__).resolve().parents[2] / ".cache"
    path.mkdir(parents=True, exist_ok=True)
    return path


def tool(name: str) -> str:
    """The path of java, javac, mvn, go or cargo. Raises ServerError that names the package to install."""
    found = shutil.which(name)
    if found is None:
        raise ServerError(f"'{name}' is not on PATH; on Debian or Ubuntu install the package {_DEBIAN_PACKAGES[name]}")
    return found


@cache
def kafka_libs(version: str) -> Path:
    """The directory with the jars of a broker, its tools and clients. Raises ServerError."""
    if version not in KAFKA_VERSIONS:
        raise ServerError(f"no pom for Kafka {version}; known: {', '.join(KAFKA_VERSIONS)}")
    return _maven_libs(f"kafka-{version}", POMS / f"{version}.xml", cache_directory() / "kafka" / version / "libs")


@cache
def server_libs(name: str) -> Path:
    """The directory with the jars of `s3proxy`, `s3mock` or `strimzi` (its definitions). Raises ServerError."""
    return _maven_libs(name, POMS / f"{name}.xml", cache_directory() / name / "libs")


def _maven_libs(name: str, pom: Path, libs: Path) -> Path:
    """The directory with the dependencies of a pom."""
    with locked(name):
        # The marker is a copy of the pom: jars of an older pom, or of an interrupted run, are brought again.
        marker = libs / "pom.xml"
        if not marker.exists() or marker.read_bytes() != pom.read_bytes():
            shutil.rmtree(libs, ignore_errors=True)
            goal = ["dependency:copy-dependencies", f"-DoutputDirectory={libs}"]
            options = f"{_MAVEN_OPTIONS} {os.environ.get('MAVEN_OPTS', '')}".rstrip()
            bring(name, [tool("mvn"), "-q", "-B", "-f", str(pom), *goal], {"MAVEN_OPTS": options})
            shutil.copyfile(pom, marker)
    return libs


@cache
def go_binary(name: str, *, optimised: bool = False) -> Path:
    """The path of a program of `_GO_PACKAGES`, for example `versitygw`. Raises ServerError."""
    package = _GO_PACKAGES[name]
    flags = [*(() if optimised else _COMPILER_FLAGS), _LINKER_FLAGS]

    def install(directory: Path) -> None:
        bring(package, [tool("go"), "install", *flags, package], {"GOBIN": str(directory)})

    return _binary(f"{name}-{package.rpartition('@')[2]}{'-optimised' if optimised else ''}", install, "*")


@cache
def go_module_programs(name: str, linker_flags: str = "", *, optimised: bool = False) -> Path:
    """The directory with the programs that `gomodules/<name>/go.mod` names as tools, every module by hash. Raises ServerError."""
    module = _GO_MODULES / name
    flags = ["-mod=readonly", *(() if optimised else _COMPILER_FLAGS), f"{_LINKER_FLAGS} {linker_flags}".rstrip()]
    made_from = hashlib.sha256((module / "go.mod").read_bytes() + "\n".join(flags).encode()).hexdigest()[:12]
    target = cache_directory() / "bin" / f"{name}-{made_from}"
    with locked(name):
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=target.parent) as work:
                # `go build` makes it: a directory of the usual rights.
                built = Path(work) / "built"
                bring(name, [tool("go"), "build", *flags, "-o", f"{built}/", "tool"], directory=module)
                built.rename(target)
    return target


@cache
def cargo_binary(name: str) -> Path:
    """The path of a program of `_CARGO_PACKAGES`. Raises ServerError."""
    package, *options = _CARGO_PACKAGES[name]

    def install(directory: Path) -> None:
        where = ["--root", str(directory), "--target-dir", str(directory / "target")]
        bring(package, [tool("cargo"), "install", package, "--locked", *options, *where])

    return _binary(package.replace("@", "-"), install, "bin/*")


@cache
def crate_binary(name: str) -> Path:
    """The path of the program of `crates/<name>`, our own main on others' crates, optimised. Raises ServerError."""
    crate = _CRATES / name
    made_from = hashlib.sha256((crate / "Cargo.toml").read_bytes() + (crate / "main.rs").read_bytes()).hexdigest()[:12]

    def install(directory: Path) -> None:
        work = shutil.copytree(crate, directory / "work")
        command = [tool("cargo"), "install", "--path", str(work), "--root", str(directory)]
        bring(name, [*command, "--target-dir", str(cache_directory() / "target" / name)])

    return _binary(f"{name}-{made_from}", install, "bin/*")


def _binary(name: str, install: Callable[[Path], None], pattern: str) -> Path:
    """`bin/<name>` of the cache. `install` leaves it in a directory, as the one file that matches."""
    target = cache_directory() / "bin" / name
    with locked(name):
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=target.parent) as directory:
                install(Path(directory))
                (built,) = Path(directory).glob(pattern)
                built.rename(target)
    return target


@cache
def python_program(name: str) -> Path:
    """The path of a program of `_PYTHON_PACKAGES`, in a virtual environment of its own. Raises ServerError.

    Not a dev dependency: it would tie our versions of botocore and others to what it needs.
    """
    package = _PYTHON_PACKAGES[name]
    directory = cache_directory() / package.replace("==", "-").replace(" ", "-")
    marker = directory / "installed"
    with locked(directory.name):
        if not marker.exists():
            shutil.rmtree(directory, ignore_errors=True)
            # A pip of its own takes longer than most packages, as does bytecode of what is never imported.
            has_pip = find_spec("pip") is not None
            python = str(directory / "bin" / "python")
            bring(package, [sys.executable, "-m", "venv", *(["--without-pip"] if has_pip else []), str(directory)])
            pip = [sys.executable, "-m", "pip", "--python", python] if has_pip else [python, "-m", "pip"]
            bring(package, [*pip, "install", "--quiet", "--no-compile", *package.split()])
            marker.touch()
    return directory / "bin" / name


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
