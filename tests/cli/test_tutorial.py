"""`docs/tutorial/archive-and-restore.md`: its commands print what it shows."""

from __future__ import annotations

import filecmp
import re
import shlex
from pathlib import Path

import pytest

from tests.cli.running import ROOT, in_this_process
from tests.golden import golden_copy

PAGE = (ROOT / "docs" / "tutorial" / "archive-and-restore.md").read_text(encoding="utf-8")
DIRECTORY = "file:///home/you/tiered-sidecar"
VARIABLES = {"TIERED_SIDECAR__RUN__STATE_DIR": "tutorial/state"}


def test_the_tutorial_shows_what_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    golden_copy("2.7.2", tmp_path / "tutorial")
    blocks = re.findall(r"^```console\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 7
    for block in blocks:
        lines = block.splitlines()
        shown = [line for line in lines if not line.startswith("$ ")]
        out, err = zip(*(run(line.removeprefix("$ ")) for line in lines if line.startswith("$ ")), strict=True)
        printed = "".join(out).replace(tmp_path.as_uri(), DIRECTORY).rstrip().splitlines()
        assert shown == [line.rstrip() for line in printed] or (not printed and shown == "".join(err).splitlines())


def run(line: str) -> tuple[str, str]:
    """What a command prints, on standard output and standard error. It has to succeed."""
    program, *words = shlex.split(line)
    if program == "mkdir":
        Path(words[0]).mkdir()
    elif program == "cmp":
        assert filecmp.cmp(*words, shallow=False)
    else:
        done = in_this_process(*words, variables=VARIABLES)
        assert done.code == 0, done.err
        return done.out, done.err
    return "", ""
