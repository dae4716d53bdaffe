"""Records without a key, and malformed versions: `run` counts each once, whether it compacts before the upload or after."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import structlog

from sidecar.compactor.archive.plan import PartitionCompaction
from sidecar.compactor.archive_job import ArchiveJobs
from sidecar.compactor.candidate_queue import Candidate, CandidateAssessor
from sidecar.compactor.group_compactor import GroupCompactor
from sidecar.compactor.topic_counts import RawReason
from sidecar.compactor.topic_rule import TopicRules
from sidecar.compactor.wiring import wire_compaction
from sidecar.config import Settings
from sidecar.config.topic_filter import TopicFilter
from sidecar.discovery.scan import scan_log_dirs
from sidecar.logformat.bodies.building import build_batch
from sidecar.logformat.bodies.record import Record
from sidecar.rewriting.local_engine import LocalEngines
from sidecar.runner.archive_loop import ArchiveLoop
from tests.compactor.before_upload_rig import NOW_MS, Rig, rig, rounds_scan
from tests.fakes.memory_store import MemoryStore
from tests.runner.archives import use
from tests.runner.rig import copy_partitions, tools_for
from tests.segment.made_logs import VERSION, records_in, roll

ENTRY = {"pattern": "orders", "strategy": "header", "header": VERSION}


def record(offset: int, key: bytes | None, value: bytes, version: bytes | None = None) -> Record:
    headers = () if version is None else ((VERSION, version),)
    return Record(offset, NOW_MS - 5_000_000 + offset, key, value, headers)


def odd_log(log_dir: Path) -> None:
    """Segment 0: a record that wins, and three odd ones. Segment 4: a record that loses. Segment 5: one more malformed version."""
    first = [
        record(0, b"a", b"a9", b"\0" * 7 + b"\x09"),
        record(1, None, b"no key"),
        record(2, b"a", b"odd", b"short"),
        record(3, b"c", b"odd, and wins", b"short"),
    ]
    second, third = [record(4, b"a", b"a1", b"\0" * 7 + b"\x01")], [record(5, b"b", b"odd too", b"short")]
    batches = {0: first, 4: second, 5: third}
    roll(log_dir, {**{base: (build_batch(site, leader_epoch=4),) for base, site in batches.items()}, 6: ()}, 6)


@contextmanager
def observed(tmp_path: Path, **settings: Any) -> Iterator[tuple[Rig, list[Any]]]:
    with structlog.testing.capture_logs() as logs, rig(tmp_path, "orders-0", topics=[{**ENTRY, **settings}]) as site:
        odd_log(site.log_dir)
        yield site, logs


def odd(logs: list[Any]) -> list[tuple[str, int, int]]:
    found = [line for line in logs if line["event"] == "compaction_unkeyed_or_malformed"]
    return [(line["log_level"], line["unkeyed_dropped"], line["malformed_versions"]) for line in found]


def test_what_before_upload_drops_is_reported_once_its_copies_are_committed(tmp_path: Path) -> None:
    with observed(tmp_path) as (site, logs):
        site.round()
        site.compactor.cycle()
        assert odd(logs) == []
        site.round()
        site.round()
        values = {found.value for found in records_in(site.stored_logs("orders-0").values())}
        assert values == {b"a9", b"odd, and wins", b"odd too"}
        # Segment 5 goes as it is: a compaction of the archive meets its malformed version.
        assert site.generations("orders-0") == [1, 1, 0]
        assert odd(logs) == [("warning", 1, 2)]
        (line,) = [line for line in logs if line["event"] == "compaction_unkeyed_or_malformed"]
        assert "no undo brings them back" in line["effect"]
        assert site.waiting.invalid.status() == {"orders": {"unkeyed": 1, "malformed_versions": 2}}


def test_a_group_that_is_not_committed_drops_nothing_and_tells_nothing(tmp_path: Path) -> None:
    with observed(tmp_path) as (site, logs):
        site.round()
        site.compactor.cycle()
        (group,) = {
            found.group for found in site.waiting._blocked[next(iter(site.waiting._blocked))].values() if found.group
        }
        site.waiting.break_up(group, RawReason.GROUP_REFUSED, "a test")
        site.round()
        assert b"no key" in {found.value for found in records_in(site.stored_logs("orders-0").values())}
        assert odd(logs) == []


def test_where_they_are_refused_the_segments_go_raw_with_the_reason(tmp_path: Path) -> None:
    with observed(tmp_path, on_unkeyed="refuse") as (site, logs):
        site.round()
        site.compactor.cycle()
        site.round()
        assert site.generations("orders-0") == [0, 0, 0]
        reported = [line for line in logs if line["event"] == "archived_without_compaction"]
        assert {line["reason"] for line in reported} == {"compaction_failed"}
        assert all("a record without a key, and on_unkeyed is refuse" in line["detail"] for line in reported)
        assert all("offset 1" in line["detail"] for line in reported)
        assert odd(logs) == []


def test_run_counts_and_shows_what_its_copies_lack(tmp_path: Path) -> None:
    log_dir, store, shown = copy_partitions(tmp_path, "orders-0"), MemoryStore(), list[Any]()
    odd_log(log_dir)
    topics = [{**ENTRY, "when": "before_upload"}]
    compaction = {"topics": topics, "check_interval_s": 3600}
    settings = Settings.model_validate({"store": {"url": str(tmp_path / "archive")}, "compaction": compaction})
    (tmp_path / "copies").mkdir()
    with tools_for(log_dir, store, tmp_path / "state", producer_id_expiration_ms=None) as context:
        with (
            structlog.testing.capture_logs(),
            wire_compaction(settings, context, LocalEngines(), shown.append) as found,
        ):
            rounds = ArchiveLoop(context, rounds_scan(log_dir), found.before_upload)
            rounds.run_once()
            GroupCompactor(found.before_upload, context, LocalEngines(), lambda: tmp_path / "copies").cycle()
            rounds.run_once()
        exposed, _ = context.metrics.exposition()
    assert shown[-1]["invalid_records"] == {"orders": {"unkeyed": 1, "malformed_versions": 2}}
    assert re.search(rb'compaction_invalid_records_total\{kind="unkeyed"\} 1.0', exposed)


def test_compactions_of_the_archive_count_a_malformed_version_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that a copy of `before_upload` has, which was counted with its group."""
    compaction = {"topics": [{**ENTRY, "segment_bytes": 14}], "staging_dir": str(tmp_path / "work")}
    settings = Settings.model_validate({"store": {"url": str(tmp_path / "archive")}, "compaction": compaction})

    def compact(site: Rig) -> PartitionCompaction:
        policy = settings.compaction.of_topic("orders")
        assert policy is not None
        (led,) = ArchiveLoop(site.context, partial(scan_log_dirs, [site.log_dir], TopicFilter((".*",)))).run_once().led
        work = Candidate(led, policy, CandidateAssessor(site.store, site.store.clock)(led, policy))
        (done,) = ArchiveJobs(
            settings, site.context, LocalEngines(), TopicRules(settings.compaction, site.context.facts.policy).rule_of
        )([work])
        assert done.error is None
        return done

    for when, expected in (("after_upload", [(1, 3), (0, 0)]), ("before_upload", [(0, 1), (0, 0)])):
        with observed(tmp_path / when, when=when) as (site, _):
            use(monkeypatch, site.store)
            site.round()
            if when == "before_upload":
                site.compactor.cycle()
                site.round()
            counted = [compact(site) for _ in range(2)]
            assert [(done.unkeyed, done.new_malformed_versions) for done in counted] == expected
