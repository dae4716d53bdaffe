"""`docs/reference/what-the-sources-ask.md`: each row names a test or command that exists, and the totals are right."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from sidecar.cli.options import OPTION_NAMES
from tests.reference_pages import commands

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "reference" / "what-the-sources-ask.md").read_text(encoding="utf-8")
MET, DIFFERS, NOT_MET = STATUSES = ("met", "differs", "**not met**")


@dataclass(frozen=True)
class Row:
    """A requirement. `shown`: what stands in backticks in the last column."""

    section: str
    requirement: str
    status: str
    how: str
    shown: tuple[str, ...]


def rows(page: str) -> Iterator[Row]:
    section = ""
    for line in page.splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        elif section and line.startswith("| ") and not line.startswith("| Requirement |"):
            requirement, status, how, shown = (cell.strip() for cell in line.strip("|").split("|"))
            yield Row(section, requirement, status, how, tuple(re.findall(r"`([^`]+)`", shown)))


@cache
def functions_in(path: Path) -> frozenset[str]:
    """Functions of a module that pytest would collect, read and not run."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def missing(shown: str) -> str:
    """What is not there of a test or command, "" if all of it is."""
    if shown.startswith("tests/"):
        file, _, name = shown.partition("::")
        is_there = (ROOT / file).is_file() and name.startswith("test_") and name in functions_in(ROOT / file)
        return "" if is_there else "no such test"
    program, *words = shown.split()
    if program == "tiered-sidecar":
        return _missing_of_command(words)
    if program == "make":
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        return ", ".join(word for word in words if not re.search(rf"^{re.escape(word)}:", makefile, re.MULTILINE))
    if program == "ls":
        return ", ".join(word for word in words if not (ROOT / word).exists())
    if (program, words[:1]) == ("python", ["-m"]):
        return ", ".join(word for word in words[1:] if find_spec(word) is None)
    return "neither a test nor a command"


def _missing_of_command(words: list[str]) -> str:
    known = dict(commands())
    name = next((name for name in (" ".join(words[:2]), *words[:1]) if name in known), None)
    if name is None:
        return "no such command"
    own = {option for parameter in known[name].params for option in parameter.opts}
    everywhere = {f"--{option.replace('_', '-')}" for option in OPTION_NAMES}
    return ", ".join(word for word in words if word.startswith("--") and word not in own | everywhere)


def test_every_test_and_command_exists() -> None:
    assert {(shown, missing(shown)) for row in rows(PAGE) for shown in row.shown if missing(shown)} == set()


def test_every_test_of_a_guarantee_exists() -> None:
    guarantees = (ROOT / "docs" / "explanation" / "guarantees.md").read_text(encoding="utf-8")
    table = guarantees.partition("\n## Guarantees\n")[2].partition("\n## ")[0]
    shown = re.findall(r"`(tests/[^`]+)`", table)
    assert len(shown) >= len(re.findall(r"^\| \*\*", table, re.MULTILINE))
    assert {(test, missing(test)) for test in shown if missing(test)} == set()


def test_every_row_is_complete() -> None:
    for row in rows(PAGE):
        assert row.requirement
        assert row.status in STATUSES, row
        assert row.shown, row
        assert row.how or row.status == MET, f"{row}: what differs, and why?"


def test_the_totals_are_right() -> None:
    found = Counter(row.status for row in rows(PAGE))
    (line,) = re.findall(r"^\d+ requirements:.*$", PAGE, re.MULTILINE)
    reported = [int(number) for number in re.findall(r"\d+", line)]
    assert reported == [found.total(), found[MET], found[DIFFERS], found[NOT_MET]]
    assert len({row.section for row in rows(PAGE)}) == 6
    assert max(Counter((row.section, row.requirement) for row in rows(PAGE)).values()) == 1


@pytest.mark.parametrize(
    ("shown", "what"),
    [
        ("tests/test_sources_page.py::test_that_is_gone", "no such test"),
        ("tests/test_gone.py::test_every_row_is_complete", "no such test"),
        ("tests/test_sources_page.py::missing", "no such test"),
        ("tests/test_sources_page.py", "no such test"),
        ("tiered-sidecar compress --archive URL", "no such command"),
        ("tiered-sidecar compact --archive URL --undoing", "--undoing"),
        ("tiered-sidecar snapshots heal --replay full DIR", ""),
        ("make nothing", "nothing"),
        ("ls README.md nothing", "nothing"),
        ("python -m benchmarks.nothing", "benchmarks.nothing"),
        ("kubectl get pods", "neither a test nor a command"),
    ],
)
def test_what_is_not_there_is_found(shown: str, what: str) -> None:
    assert missing(shown) == what
