"""What of a restored log's end a person must know: transactions that are open there, and an archive that goes on above it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sidecar.cli.restore.report import show
from sidecar.errors import SettingsError
from sidecar.restore.outcome import PartitionOutcome
from sidecar.restore.request import OpenTransactionMode, ProducerStateMode, RestoreRequest
from sidecar.restore.restore import RestoreReport, plan_restore, restore
from tests.restore.archives import CLOCK, archived, golden_topic_id, other_log_dir, own_log_dir, restored
from tests.restore.test_damage import segment_keys
from tests.restore.test_refusals import OTHER_ID

OPEN_SINCE, END = (431, 443), 603
"""Of what is archived of transactions-0."""


def reported(
    log_dir: Path, outcome: PartitionOutcome, capsys: pytest.CaptureFixture[str], *, dry_run: bool = False
) -> str:
    show(RestoreReport(log_dir, 0, [outcome]), colors=False, dry_run=dry_run)
    return " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("does", [restore, plan_restore])
def test_open_transactions_are_refused_before_anything_is_fetched_where_they_must_be_ended(
    does: object, tmp_path: Path
) -> None:
    store, log_dir = archived(), other_log_dir(tmp_path)
    request = RestoreRequest("transactions", log_dir, topic_id=golden_topic_id("transactions"))
    with pytest.raises(SettingsError, match=r"\(transactions-0: 2\).*give --open-transactions abort"):
        does(store, CLOCK, request)  # type: ignore[operator]
    assert store.calls["stream"] == 0
    assert not list(log_dir.glob("transactions*"))


def test_how_many_were_ended_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log_dir = other_log_dir(tmp_path)
    outcome = restored(archived(), log_dir, "transactions", open_transactions=OpenTransactionMode.ABORT)
    assert outcome.log is not None
    assert (outcome.log.open_transactions, outcome.log.end_offset) == (OPEN_SINCE, END + 2)
    assert (
        f"2 transactions were open at the end, ended by abort markers, one offset each: {END} to {END + 1}"
        in reported(log_dir, outcome, capsys)
    )


@pytest.mark.leaves_damage("size_mismatch")
def test_an_end_that_cannot_be_read_stops_its_partition_as_ever(tmp_path: Path) -> None:
    store, log_dir = archived(), other_log_dir(tmp_path)
    indexes = max(key for key in store.objects if "/transactions/0/" in key and "indexes" in key)
    store.objects[indexes] = b""
    assert segment_keys(store, "/transactions/0/")
    report = restore(store, CLOCK, RestoreRequest("transactions", log_dir, topic_id=golden_topic_id("transactions")))
    assert [outcome.state for outcome in report.outcomes] == ["stopped", "restored"]


def test_an_archive_that_goes_on_above_a_log_of_the_same_topic_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, log_dir = archived(), own_log_dir(tmp_path)
    request = RestoreRequest(
        "orders", log_dir, partitions=(0,), offset_range=(0, 500), topic_id=golden_topic_id("orders")
    )
    words = "orders-0: the archive of this topic reaches to 964, this log ends below"
    planned = plan_restore(store, CLOCK, request).outcomes[0]
    assert planned.to_json()["archive_end_offset"] == 964
    assert words in reported(log_dir, planned, capsys, dry_run=True)
    assert words in reported(log_dir, restore(store, CLOCK, request).outcomes[0], capsys)


@pytest.mark.parametrize(
    "wish",
    [{}, {"offset_range": (0, 500), "topic_id": OTHER_ID, "producer_state": ProducerStateMode.KEEP}],
    ids=["all of it", "another topic"],
)
def test_an_archive_that_does_not_is_not(
    wish: dict[str, object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log_dir = own_log_dir(tmp_path)
    assert "reaches to" not in reported(log_dir, restored(archived(), log_dir, "orders", **wish), capsys)
