"""Writes the tables of docs/reference/object-stores.md: `python -m tests.stores.page`.

Runs every fault mode, which takes about ten minutes.

`--stores` writes the table of servers alone. Needs what the tests of versitygw need.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.servers.stores import STORES, StoreKind
from tests.stores.fault_modes import MODES, FaultMode
from tests.stores.under_fault import Outcome, Refusal, make_source, run_under

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "object-stores.md"
_YES_NO = {True: "yes", False: "no"}


def store_table() -> str:
    """What each server can do, by its description, which tests/stores/test_kinds.py compares with the server."""
    head = [
        "Store",
        "From",
        "Tested by",
        "Accepted",
        "Refuses wrong keys",
        "Lists unfinished uploads",
        "CRC-32C of the whole",
    ]
    return _table(head, [_store_row(kind) for kind in STORES])


def _store_row(kind: StoreKind) -> list[str]:
    accepted = "yes" if kind.one_writer_wins else "**no**: several writers win"
    tested_by = "`make test`" if kind.in_gate else "`make store-matrix`"
    uploads = _YES_NO[kind.lists_unfinished_uploads]
    if kind.lists_unfinished_uploads and not kind.lists_them_by_prefix:
        uploads = "by whole key only"
    row = [f"{kind.name} {kind.version}", kind.source, tested_by, accepted]
    return [*row, _YES_NO[kind.checks_keys], uploads, _YES_NO[kind.whole_crc]]


def fault_row(mode: FaultMode, outcome: Outcome | Refusal) -> list[str]:
    """A row of the table of faults."""
    if isinstance(outcome, Refusal):
        return [
            mode.name,
            "at start",
            str(outcome.broken),
            "never starts",
            "-",
            "0",
            f"exit code {outcome.exit_code}: not fit",
        ]
    when = "all the time" if mode.lasts_s is None else f"{mode.lasts_s:.0f} s"
    # Each mode has an archive of its own, which is new whatever the fault.
    reported = sorted(outcome.reported.keys() - {"archive_is_new"})
    if outcome.ended:
        reported.insert(0, f"exit code {', '.join(map(str, sorted(set(outcome.ended))))}, restarted")
    recovered = "-" if mode.lasts_s is None else f"{outcome.recovered_s:.0f} s"
    return [
        mode.name,
        when,
        str(outcome.broken),
        f"{outcome.took_s:.0f} s",
        recovered,
        str(outcome.orphans),
        ", ".join(reported) or "retries only",
    ]


def fault_table(rows: Sequence[Sequence[str]]) -> str:
    """Of rows of `fault_row`."""
    head = [
        "Fault",
        "Lasts",
        "Requests broken",
        "All archived after",
        "After the fault's end",
        "Objects left for gc",
        "Warnings and errors",
    ]
    return _table(head, rows)


def written(name: str) -> str:
    """The table with this name as it stands in the page."""
    return _parts(name)[1]


def write(name: str, table: str) -> None:
    """Replace it."""
    before, _, after = _parts(name)
    PAGE.write_text(before + table + after, encoding="utf-8")


def _parts(name: str) -> tuple[str, str, str]:
    """The page up to a table, the table, and the rest."""
    begin, end = f"<!-- {name} -->\n", "<!-- end -->\n"
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(begin)
    table, _, after = rest.partition(end)
    return before + begin, table, end + after


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _measure() -> None:
    rows = []
    (versitygw,) = (kind for kind in STORES if kind.name == "versitygw")
    with tempfile.TemporaryDirectory() as directory, versitygw.start(Path(directory) / "server") as server:
        source = make_source(Path(directory) / "source")
        for number, mode in enumerate(MODES):
            own = Path(directory) / f"mode-{number}"
            own.mkdir()
            outcome = run_under(mode, server, source, own)
            print(mode.name, outcome, flush=True)
            rows.append(fault_row(mode, outcome))
    write("faults", fault_table(rows))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stores", action="store_true", help="the table of servers alone")
    is_quick = parser.parse_args().stores
    write("stores", store_table())
    if not is_quick:
        _measure()
