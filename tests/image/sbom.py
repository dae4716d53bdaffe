"""`make sbom`: what is in the image, into `build/sbom`: Python packages (CycloneDX), jars with their hashes, Debian packages."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

from tests.image.build import ROOT, build, mounted, require_tools
from tests.servers.dist import cache_directory

OUT = ROOT / "build" / "sbom"
_TOOL = "cyclonedx-bom==7.5.0"


def main() -> None:
    """Write the three lists."""
    require_tools()
    build()
    OUT.mkdir(parents=True, exist_ok=True)
    with mounted() as root:
        jars = sorted((root / "opt").rglob("*.jar"))
        lines = [f"{hashlib.sha256(jar.read_bytes()).hexdigest()}  {jar.name}\n" for jar in jars]
        (OUT / "jars.sha256").write_text("".join(lines), encoding="utf-8")
        fields = "${Package}\t${Version}\t${Architecture}\n"
        listing = ["dpkg-query", f"--admindir={root / 'var/lib/dpkg'}", "-W", f"-f={fields}"]
        packages = subprocess.run(listing, capture_output=True, text=True, check=True).stdout
        (OUT / "debian.tsv").write_text(packages, encoding="utf-8")
    python = OUT / "python.cdx.json"
    lock = str(ROOT / "requirements-image.lock")
    subprocess.run([str(_cyclonedx()), "requirements", lock, "--output-file", str(python)], check=True)
    print(f"{OUT}: {len(lines)} jars, {len(packages.splitlines())} Debian packages, {python.name}")


def _cyclonedx() -> Path:
    """In an environment of its own: its many dependencies are nobody else's."""
    environment = cache_directory() / "cyclonedx"
    program = environment / "bin" / "cyclonedx-py"
    if not program.exists():
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
        subprocess.run([str(environment / "bin" / "pip"), "install", "--quiet", _TOOL], check=True)
    return program


if __name__ == "__main__":
    main()
