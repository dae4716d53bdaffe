"""Builds the image from a bootstrapped Debian: no daemon, no registry. Needs root, and Debian's buildah and mmdebstrap.

Everything is kept in the tests' cache: the base for good, layers until their files change.
"""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.dist import cache_directory

ROOT = Path(__file__).parents[2]
BASE = "localhost/tiered-sidecar-base:bookworm-slim"
IMAGE = "localhost/tiered-sidecar:test"
PACKAGES = {"buildah": "buildah", "bwrap": "bubblewrap", "mmdebstrap": "mmdebstrap"}
_SLIM = ("man", "locale", "doc")


def require_tools() -> None:
    """End with a sentence that says what is missing."""
    missing = [package for program, package in PACKAGES.items() if shutil.which(program) is None]
    if missing:
        sys.exit(f"install the Debian packages {' '.join(missing)}: they build and run the image without a daemon")
    if os.geteuid() != 0:
        sys.exit("image-test needs root: it makes a base system and mounts layers")


def build() -> None:
    """The image from the Dockerfile as it is, with this machine's certificates for the package registries."""
    if not _has(BASE):
        _bootstrap()
    certificates = ssl.get_default_verify_paths().cafile or "/etc/ssl/certs/ca-certificates.crt"
    configuration = _directory() / "pip.conf"
    configuration.write_text("[global]\ncert = /run/build/ca.crt\ntimeout = 180\n")
    mounts = ["-v", f"{certificates}:/run/build/ca.crt:ro", "-v", f"{configuration}:/etc/pip.conf:ro"]
    arguments = ["--layers", "--pull-never", "--build-arg", f"BASE={BASE}", *mounts, "-t", IMAGE]
    buildah("bud", *arguments, "-f", str(ROOT / "Dockerfile"), str(ROOT))


@contextmanager
def mounted() -> Iterator[Path]:
    """The image's root directory."""
    container = buildah("from", "--pull-never", IMAGE).split()[-1]
    try:
        yield Path(buildah("mount", container).strip())
    finally:
        buildah("rm", container)


def compressed_bytes() -> int:
    """The size of the image as a registry keeps it."""
    archive = _directory() / "image.tar"
    archive.unlink(missing_ok=True)
    buildah("push", IMAGE, f"oci-archive:{archive}")
    size_bytes = archive.stat().st_size
    archive.unlink()
    return size_bytes


def buildah(*arguments: str) -> str:
    """What a command prints; its progress goes to stderr. Raises CalledProcessError."""
    own = ["--root", str(_directory() / "store"), "--runroot", str(_directory() / "run")]
    done = subprocess.run(
        ["buildah", *own, *arguments],
        env={**os.environ, "BUILDAH_ISOLATION": "chroot"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout


def _has(image: str) -> bool:
    return image in buildah("images", "--format", "{{.Name}}:{{.Tag}}").split()


def _bootstrap() -> None:
    tarball = _directory() / "base.tar"
    exclusions = [f"--dpkgopt=path-exclude=/usr/share/{folder}/*" for folder in _SLIM]
    exclusions.append("--dpkgopt=path-include=/usr/share/doc/*/copyright")  # licences stay, as in Debian's slim images
    sources = [str(path) for path in [Path("/etc/apt/sources.list.d/debian.sources")] if path.exists()]
    subprocess.run(
        ["mmdebstrap", "--quiet", "--variant=minbase", *exclusions, "bookworm", str(tarball), *sources], check=True
    )
    container = buildah("from", "scratch").split()[-1]
    buildah("add", container, str(tarball), "/")
    buildah("commit", "--rm", container, BASE)
    tarball.unlink()


def _directory() -> Path:
    path = cache_directory() / "image"
    path.mkdir(exist_ok=True)
    return path
