"""`docs/how-to/change-the-strategy.md`: its settings, its commands and what they print, on a real archive."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from sidecar.logformat.bodies.record import Record
from tests.cli.running import ROOT, in_this_process
from tests.cli.test_compaction_rules import LATER_MS, Site

PAGE = (ROOT / "docs" / "how-to" / "change-the-strategy.md").read_text(encoding="utf-8")
COMPACT = "compact --archive s3://bucket/prefix --topic hdr --config settings.yaml"


def blocks(kind: str) -> Iterator[list[str]]:
    for indent, body in re.findall(rf"^( *)```{kind}\n(.*?)^ *```$", PAGE, re.MULTILINE | re.DOTALL):
        yield [line.removeprefix(indent) for line in body.splitlines()]


def squeezed(text: str) -> str:
    """A line without its spacing and without times, which are other ones each time."""
    return re.sub(r"\d{4}-\d\d-\d\dT[\d:]+Z", "TIME", " ".join(text.split()))


def test_the_page_says_what_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    site = Site(tmp_path)
    site.write(Record(4, LATER_MS + 4, b"k0", b"5", ()))  # Of an old producer.
    settings = tmp_path / "settings.yaml"
    ((*lines,),) = blocks("yaml")
    settings.write_text("\n".join([f"store: {{url: {site.archive}}}", *lines, ""]))
    commands = list(blocks("console"))
    assert sum(line.startswith("$ ") for block in commands for line in block) == 6
    for block in commands:
        typed = [line.removeprefix("$ tiered-sidecar ") for line in block if line.startswith("$ ")]
        shown = "\n".join(printed(site, settings, command) for command in typed)
        found = [squeezed(line) for line in shown.splitlines()]
        expected = [squeezed(line) for line in block if not line.startswith("$ ")]
        assert [line for line in expected if line not in found] == [], shown
        if typed == [COMPACT]:
            assert site.kept() == {b"k0": 9, b"k1": 9}
    with pytest.raises(AssertionError):
        site.kept()  # After the undo a key has several records.


def printed(site: Site, settings: Path, command: str) -> str:
    """What a command of the page prints, which has to succeed."""
    places = {"s3://bucket/prefix": str(site.archive), "settings.yaml": str(settings)}
    words = [places.get(word, word) for word in shlex.split(command)]
    engine = ["--engine", "local"] if words[0] == "compact" and "--undo" not in words else []
    done = in_this_process(*words, *engine)
    assert done.code == 0, done.err
    return done.out + done.err
