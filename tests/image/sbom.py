"""`make sbom`: what is in the image, into `build/sbom`: Python packages (CycloneDX), jars with their hashes, Debian packages.

Packages and jars are those of an environment that is made as in the Dockerfile. Debian's are read from the built image, where
this machine can build it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from packaging.utils import canonicalize_name

from tests.image.build import PACKAGES, ROOT, build, mounted
from tests.release.notice import LOCK, requirements
from tests.servers.dist import python_program

OUT = ROOT / "build" / "sbom"
_ENVIRONMENT = ROOT / "build" / "sbom-environment"


def main() -> None:
    """Write the lists."""
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    packages = _installed()
    jars = sorted((packages / "pyspark" / "jars").glob("*.jar"))
    lines = [f"{hashlib.sha256(jar.read_bytes()).hexdigest()}  {jar.name}\n" for jar in jars]
    (OUT / "jars.sha256").write_text("".join(lines), encoding="utf-8")
    bom = OUT / "python.cdx.json"
    own = ["--pyproject", str(ROOT / "pyproject.toml"), "--output-reproducible", "--validate"]
    subprocess.run(
        [str(python_program("cyclonedx-py")), "environment", *own, "-o", str(bom), str(_ENVIRONMENT)], check=True
    )
    print(f"{OUT}: {require_complete(bom)} Python packages, {len(lines)} jars")
    if os.geteuid() == 0 and all(map(shutil.which, PACKAGES)):
        build()
        _write_debian_packages(OUT / "debian.tsv")
    else:
        print(f"No debian.tsv: it needs root and {' '.join(PACKAGES.values())}")


def require_complete(bom: Path) -> int:
    """How many packages a CycloneDX file has. Raises AssertionError unless these are the image's, each with a licence."""
    components = json.loads(bom.read_text(encoding="utf-8"))["components"]
    found = {canonicalize_name(component["name"]): component["version"] for component in components}
    pinned = {found.name: str(found.specifier).removeprefix("==") for found in requirements()}
    assert found == pinned, sorted(found.items() ^ pinned.items())
    assert all(component.get("licenses") for component in components)
    return len(found)


def _installed() -> Path:
    """The site-packages of an environment that has what the image has."""
    subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", str(_ENVIRONMENT)], check=True)
    options = ["--quiet", "--no-compile", "--no-deps", "--require-hashes"]
    environment = {**os.environ, "DIST_EXTRA_CONFIG": str(ROOT / "wheels.cfg")}
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(_ENVIRONMENT)]
    subprocess.run([*pip, "install", *options, "-r", str(LOCK)], env=environment, check=True)
    (packages,) = (_ENVIRONMENT / "lib").glob("python3*/site-packages")
    subprocess.run([sys.executable, str(ROOT / "docker" / "trim.py"), str(packages), "local"], check=True)
    return packages


def _write_debian_packages(path: Path) -> None:
    with mounted() as root:
        fields = "${Package}\t${Version}\t${Architecture}\n"
        listing = ["dpkg-query", f"--admindir={root / 'var/lib/dpkg'}", "-W", f"-f={fields}"]
        path.write_text(subprocess.run(listing, capture_output=True, text=True, check=True).stdout, encoding="utf-8")


if __name__ == "__main__":
    main()
