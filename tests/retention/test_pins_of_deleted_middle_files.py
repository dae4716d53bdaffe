"""A pinned file that someone deletes from between others: not archived from its pin, and never lost in silence."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from sidecar.broker.files import FileBrokerFacts
from sidecar.config.topic_policy import TopicPolicySettings
from sidecar.errors import CoverageHole, StoreUnavailable
from sidecar.partition.pins import COPY_BACK
from sidecar.runner.archive_loop import ArchiveLoop
from sidecar.runner.context import RunContext
from tests.retention.pinned_rig import Outage, held_names
from tests.retention.test_missing_offsets import LOST, ORDERS, holes, log_of, orders_of
from tests.retention.test_pinned_logs import released
from tests.runner.rig import copy_partitions, ranges, rounds_over, tools_for


@contextmanager
def pinned_in_an_outage(
    tmp_path: Path, uploads: int = 0, policy: str | None = None, *, record_lost: bool = False
) -> Iterator[tuple[RunContext, ArchiveLoop, Outage, Path]]:
    """All is pinned, but for what came through before the outage: two uploads each. It is over."""
    log_dir, outage = copy_partitions(tmp_path, "orders-0"), Outage(uploads)
    policies = [TopicPolicySettings.model_validate({"pattern": "orders", "cleanup_policy": policy})] if policy else []
    with tools_for(log_dir, outage.store, tmp_path / "state", record_lost=record_lost, uploads_ahead=1) as context:
        context = replace(context, facts=FileBrokerFacts([log_dir], assume_leader=True, policies=policies))
        rounds = rounds_over(context, log_dir)
        assert [type(error) for error in rounds.run_once().errors] == [StoreUnavailable]
        assert LOST[0] in held_names(context)
        outage.left = None
        yield context, rounds, outage, log_dir
        context.pinned.release()


@pytest.mark.parametrize("uploads", [0, 6], ids=["above segments that wait", "just above the archive"])
@pytest.mark.parametrize("last", [LOST, ORDERS[5]], ids=["one file", "three files"])
def test_the_partition_stops_and_the_log_names_the_file_its_offsets_and_what_to_do(
    uploads: int, last: tuple[int, int], tmp_path: Path
) -> None:
    with pinned_in_an_outage(tmp_path, uploads) as (context, rounds, outage, log_dir), capture_logs() as logs:
        spans = [span for span in ORDERS if LOST[0] <= span[0] <= last[0]]
        for base_offset, _ in spans:
            log_of(log_dir, base_offset).unlink()
        (error,) = rounds.run_once().errors
        assert not {base_offset for base_offset, _ in spans} & set(held_names(context))
        assert isinstance(error, CoverageHole)
        assert error.hole == (LOST[0], last[1])
        lines = [line for line in logs if line["event"] == "pinned_segment_released"]
        assert [(line["log_level"], line["path"]) for line in lines] == [
            ("error", str(log_of(log_dir, base_offset))) for base_offset, _ in spans
        ]
        for (base_offset, end_offset), line in zip(spans, lines, strict=True):
            assert f"its offsets from {base_offset} to {end_offset - 1} were not archived" in line["reason"]
            assert line["reason"].endswith(COPY_BACK)
        rounds.run_once()  # It is reported once.
        assert released(logs) == [base_offset for base_offset, _ in spans]
        assert orders_of(outage.store).end_offset in {ORDERS[1][1], LOST[0]}


def test_the_file_can_be_copied_back_from_the_brokers_open_file(tmp_path: Path) -> None:
    with pinned_in_an_outage(tmp_path) as (_, rounds, outage, log_dir):
        log = log_of(log_dir, LOST[0])
        with log.open("rb") as open_in_the_broker:
            log.unlink()
            assert [type(error) for error in rounds.run_once().errors] == [CoverageHole]
            shutil.copyfile(f"/proc/{os.getpid()}/fd/{open_in_the_broker.fileno()}", log)
        assert rounds.run_once().errors == []
        state = orders_of(outage.store)
        assert (ranges(state), holes(state)) == (ORDERS, [])


def test_with_record_lost_the_gap_is_recorded(tmp_path: Path) -> None:
    with pinned_in_an_outage(tmp_path, record_lost=True) as (_, rounds, outage, log_dir), capture_logs() as logs:
        log_of(log_dir, LOST[0]).unlink()
        assert rounds.run_once().errors == []
        assert released(logs) == [LOST[0]]
        lost = [(line["from_offset"], line["to_offset"]) for line in logs if line["event"] == "offsets_lost"]
        assert lost == holes(orders_of(outage.store)) == [LOST]


@pytest.mark.parametrize("cleaned_to", [0, LOST[1]], ids=["above what is cleaned", "below it"])
def test_where_the_directory_alone_looks_as_if_a_cleaner_had_been_there_the_log_says_that_none_was(
    cleaned_to: int, tmp_path: Path
) -> None:
    """The archive takes the missing offsets for compacted; below the first dirty offset that has no event of its own."""
    with pinned_in_an_outage(tmp_path, policy="compact") as (_, rounds, outage, log_dir), capture_logs() as logs:
        (log_dir / "cleaner-offset-checkpoint").write_text(f"0\n1\norders 0 {cleaned_to}\n")
        log_of(log_dir, LOST[0]).unlink()
        assert rounds.run_once().errors == []
        assert released(logs) == [LOST[0]]
        accepted = [line["offsets"] for line in logs if line["event"] == "missing_offsets_accepted_as_compacted"]
        assert accepted == ([] if cleaned_to else [LOST])
        assert orders_of(outage.store).end_offset == ORDERS[-1][1]


def test_a_cleaner_that_merges_pinned_segments_is_no_such_case(tmp_path: Path) -> None:
    with pinned_in_an_outage(tmp_path, policy="compact") as (_, rounds, _outage, log_dir), capture_logs() as logs:
        first, second = log_of(log_dir, ORDERS[2][0]), log_of(log_dir, LOST[0])
        merged = first.with_suffix(".log.cleaned")
        merged.write_bytes(first.read_bytes() + second.read_bytes())
        second.unlink()
        merged.rename(first)
        for log in (first, second):
            for suffix in ("index", "timeindex", "txnindex"):
                log.with_suffix(f".{suffix}").unlink(missing_ok=True)
        assert rounds.run_once().errors == []
        assert released(logs) == []
