"""The reference pages say what the code does, and every command and option stands in them."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from sidecar.cli.options import OPTION_NAMES
from sidecar.runner import backfill
from sidecar.verify.status import PartitionRow
from sidecar.verify.verify import PartitionVerification
from tests.event_page import BELOW_WARNING, MEANINGS, log_events
from tests.reference_pages import PAGES, commands, with_diagram

DOCS = Path(__file__).parents[1] / "docs"


@pytest.mark.parametrize("name", sorted(PAGES))
def test_the_page_is_what_the_code_would_write(name: str) -> None:
    written = (DOCS / "reference" / name).read_text(encoding="utf-8")
    assert written == PAGES[name](), f"run: python -m tests.reference_pages   (docs/reference/{name} is out of date)"


def test_every_event_has_a_text() -> None:
    assert {event.name for event in log_events()} == set(MEANINGS)


def test_every_event_that_another_page_names_is_listed() -> None:
    pages = [path.read_text(encoding="utf-8") for path in DOCS.rglob("*.md") if path.name != "events.md"]
    at_info = {event.name for event in log_events(("info",)) if any(f"`{event.name}`" in page for page in pages)}
    assert at_info - set(MEANINGS) - {"stopped"} == set(BELOW_WARNING)  # Pages have that word as a state.


def test_the_diagram_of_the_copy_task_is_what_the_code_would_write() -> None:
    written = (DOCS / "explanation" / "architecture.md").read_text(encoding="utf-8")
    assert "Archiving --> " in written
    assert written == with_diagram(written), "run: python -m tests.reference_pages"


@pytest.mark.parametrize(
    ("name", "command"), list(commands()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_every_command_and_each_of_its_options_is_explained(name: str, command: object) -> None:
    page = (DOCS / "reference" / "cli.md").read_text(encoding="utf-8")
    section = page.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    assert getattr(command, "help", ""), f"{name} has no help text"
    assert section, f"docs/reference/cli.md has no section on {name}"
    assert " VALUE`" not in section, f"docs/reference/cli.md does not say which values an option of {name} takes"
    for parameter in getattr(command, "params", []):
        assert parameter.help, f"{name} {parameter.name} has no help text"
        if parameter.name not in {*OPTION_NAMES, "help"} and parameter.param_type_name == "option":
            assert parameter.opts[0] in section


def test_every_kind_of_answer_is_explained_and_the_fields_of_those_that_monitoring_reads() -> None:
    page = (DOCS / "reference" / "json.md").read_text(encoding="utf-8")
    sources = [path.read_text(encoding="utf-8") for path in (DOCS.parent / "sidecar").rglob("*.py")]
    printed = r'(?:print_answer\(|reported\(options, |"kind": )"([a-z_]+)"'
    kinds = {kind for source in sources for kind in re.findall(printed, source)}
    assert {"partition_status", "snapshots_check", "doctor", "backfill"} <= kinds
    assert {kind for kind in kinds if f"`{kind}`" not in page} <= {
        "partition_metadata"
    }  # `inspect` prints what a file is.
    rows = (PartitionRow, PartitionVerification, backfill.PartitionRow)
    names = {field.name for row in rows for field in fields(row)} - {"row"}
    assert {name for name in names if f"`{name}`" not in page} == set()
