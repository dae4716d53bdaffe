"""`make dist`: the source archive and the wheel, in `build/dist`, checked as PyPI checks an upload."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.servers.dist import python_program

ROOT = Path(__file__).parents[2]
OUT = ROOT / "build" / "dist"


def build(out: Path) -> tuple[Path, Path]:
    """The source archive and the wheel that is built from it. Raises CalledProcessError."""
    # The same wheel of the same commit, whenever it is built.
    committed = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    environment = {**os.environ, "SOURCE_DATE_EPOCH": committed.stdout.strip()}
    command = [str(python_program("pyproject-build")), "--outdir", str(out), str(ROOT)]
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    (source,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    subprocess.run([str(python_program("twine")), "check", "--strict", str(source), str(wheel)], check=True)
    return source, wheel


if __name__ == "__main__":
    shutil.rmtree(OUT, ignore_errors=True)
    print(*build(OUT), sep="\n")
