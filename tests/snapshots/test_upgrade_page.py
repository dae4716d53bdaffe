"""The operator's page speaks of commands, options and results that there are."""

from __future__ import annotations

import re
from pathlib import Path

from sidecar.snapshots.check import Result

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "how-to" / "upgrade-from-before-2.8.md").read_text()
# Written from the code; another test compares.
COMMANDS = (DOCS / "reference" / "cli.md").read_text()


def test_commands_and_options_exist() -> None:
    commands = set(re.findall(r"tiered-sidecar (?:--json )?(\w+ \w+)", PAGE))
    assert commands == {"snapshots heal", "snapshots check"}
    assert all(f"tiered-sidecar {command} " in COMMANDS for command in commands)
    options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGE))
    assert {option for option in options if option not in COMMANDS} == set()


def test_the_results_of_a_check_are_explained() -> None:
    assert {result for result in Result if f"`{result}`" not in PAGE} == set()
