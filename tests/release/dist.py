"""`make dist`: the source archive and the wheel, in `build/dist`, checked as PyPI checks an upload."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import tomllib
from pathlib import Path

from tests.servers.dist import python_program

ROOT = Path(__file__).parents[2]
OUT = ROOT / "build" / "dist"
_FILES = ("LICENSE", "NOTICE", "README.md", "pyproject.toml")
_PACKAGES = ("producer_state", "sidecar")


def build(out: Path) -> tuple[Path, Path]:
    """The source archive and the wheel that is built from it, by the setuptools beside the builder. Raises CalledProcessError."""
    # The same wheel of the same commit, whenever it is built.
    committed = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    environment = {**os.environ, "SOURCE_DATE_EPOCH": committed.stdout.strip()}
    with tempfile.TemporaryDirectory() as name:
        # A copy: setuptools would write into the tree, and take what an earlier build left there.
        tree = Path(name)
        for file in _FILES:
            shutil.copy2(ROOT / file, tree)
        for package in _PACKAGES:
            shutil.copytree(ROOT / package, tree / package, ignore=shutil.ignore_patterns("__pycache__", "*.nb[ci]"))
        readme = tree / "README.md"
        readme.write_text(with_addresses(readme.read_text(encoding="utf-8")), encoding="utf-8")
        command = [str(python_program("pyproject-build")), "--no-isolation", "--outdir", str(out), str(tree)]
        subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    (source,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return source, wheel


def check(*built: Path) -> None:
    """As PyPI does with an upload. Raises CalledProcessError."""
    subprocess.run([str(python_program("twine")), "check", "--strict", *map(str, built)], check=True)


def with_addresses(readme: str) -> str:
    """The README for PyPI, which has no other file: links and pictures lead to the repository at this version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    source, version = project["urls"]["Source"], project["version"]

    def absolute(link: re.Match[str]) -> str:
        kind = "raw" if link[1] else "blob"
        return f"{link[1]}[{link[2]}]({source}/{kind}/v{version}/{link[3]})"

    return re.sub(r"(!?)\[([^]]*)\]\((?!https?:|#)([^)]+)\)", absolute, readme)


if __name__ == "__main__":
    shutil.rmtree(OUT, ignore_errors=True)
    made = build(OUT)
    check(*made)
    print(*made, sep="\n")
