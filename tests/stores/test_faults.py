"""`run` while a store or the network fails. `make store-matrix` runs the other modes, and measures (tests/stores/page.py)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.s3_server import S3Server
from tests.servers.versitygw import VersityGateway
from tests.stores.fault_modes import MODES, FaultMode
from tests.stores.page import PAGE, fault_row, fault_table, store_table, written
from tests.stores.under_fault import SEGMENTS_AFTER, SEGMENTS_BEFORE, Outcome, make_source, run_under


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with VersityGateway(tmp_path_factory.mktemp("versitygw"), options=["--quiet"]) as started:
        yield started


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_source(tmp_path_factory.mktemp("source"))


@pytest.mark.real
@pytest.mark.parametrize("mode", [mode for mode in MODES if mode.in_gate], ids=str)
def test_nothing_is_lost_and_nothing_is_there_twice(
    mode: FaultMode, server: S3Server, source: Path, tmp_path: Path
) -> None:
    outcome = run_under(mode, server, source, tmp_path)
    assert outcome.broken > 0
    if mode.is_refused:
        assert "create-only put" in getattr(outcome, "reason", "")
        return
    assert isinstance(outcome, Outcome)
    assert (outcome.ended, outcome.commits) == ((), SEGMENTS_BEFORE + SEGMENTS_AFTER)
    assert "partition_stopped" not in outcome.reported


def test_the_page_names_all_servers_and_all_faults() -> None:
    assert written("stores") == store_table(), "run: python -m tests.stores.page --stores"
    rows = written("faults").splitlines()[2:]
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows] == [mode.name for mode in MODES], (
        f"run: python -m tests.stores.page   ({PAGE.name} is out of date)"
    )
    assert written("faults").startswith(fault_table([]))


def test_a_row_has_what_the_fault_causes_and_not_that_its_archive_is_new() -> None:
    for reported, words in (([], "retries only"), (["partition_stopped"], "partition_stopped")):
        outcome = Outcome(1, 1.0, 0.0, (), Counter(["archive_is_new", *reported]), 6, 0, 0)
        assert fault_row(MODES[0], outcome)[-1] == words
