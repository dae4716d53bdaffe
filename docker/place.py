# ruff: noqa: INP001 - scripts of the image build, no package
"""Puts the two packages and the command into a virtual environment: `place.py SOURCE ENVIRONMENT`."""

from __future__ import annotations

import shutil
import sys
import tomllib
from pathlib import Path

COMMAND = """\
#!{python}
import sys

from {module} import {function}

sys.exit({function}())
"""


def main() -> None:
    """Copy, and write what `importlib.metadata` and scanners look for."""
    source, environment = Path(sys.argv[1]), Path(sys.argv[2])
    project = tomllib.loads((source / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    packages = environment / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    for name in ("producer_state", "sidecar"):
        shutil.copytree(source / name, packages / name, ignore=shutil.ignore_patterns("__pycache__"))
    information = packages / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    information.mkdir()
    fields = {"Metadata-Version": "2.1", "Name": project["name"], "Version": project["version"]}
    (information / "METADATA").write_text("".join(f"{name}: {value}\n" for name, value in fields.items()))
    (information / "INSTALLER").write_text("image\n")
    for command, target in project["scripts"].items():
        module, _, function = target.partition(":")
        path = environment / "bin" / command
        path.write_text(COMMAND.format(python=environment / "bin" / "python", module=module, function=function))
        path.chmod(0o755)


if __name__ == "__main__":
    main()
