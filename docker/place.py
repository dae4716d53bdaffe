# ruff: noqa: INP001 - scripts of the image build, no package
"""Puts the two packages, and `launch.py` as the command, into a virtual environment: `place.py SOURCE ENVIRONMENT`."""

from __future__ import annotations

import os
import shutil
import sys
import tomllib
from pathlib import Path


def main() -> None:
    """Copy, and write what `importlib.metadata` and scanners look for."""
    source, environment = Path(sys.argv[1]), Path(sys.argv[2])
    project = tomllib.loads((source / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    packages = environment / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    for name in ("producer_state", "sidecar"):
        shutil.copytree(source / name, packages / name, ignore=shutil.ignore_patterns("__pycache__"))
        for path in (packages / name).rglob("*.py"):
            # Compiled kernels hold for a file of one time, of which the layers of an image only keep the seconds.
            os.utime(path, (int(path.stat().st_mtime),) * 2)
    information = packages / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    information.mkdir()
    fields = {"Metadata-Version": "2.1", "Name": project["name"], "Version": project["version"]}
    (information / "METADATA").write_text("".join(f"{name}: {value}\n" for name, value in fields.items()))
    (information / "INSTALLER").write_text("image\n")
    launcher = (Path(__file__).parent / "launch.py").read_text(encoding="utf-8")
    for command in project["scripts"]:
        path = environment / "bin" / command
        path.write_text(f"#!{environment / 'bin' / 'python'}\n{launcher}", encoding="utf-8")
        path.chmod(0o755)


if __name__ == "__main__":
    main()
