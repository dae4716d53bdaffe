"""What was seen of a log, and was gone before anything of it was archived, is reported: no commit can say so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from sidecar.broker.files import FileBrokerFacts
from sidecar.errors import StoreUnavailable
from sidecar.runner.archive_loop import ArchiveLoop
from sidecar.runner.context import RunContext
from sidecar.topic_policy import TopicPolicy
from tests.fakes.memory_store import MemoryStore
from tests.runner.rig import (
    archive,
    archived_states,
    copy_partitions,
    ranges,
    remove_offsets,
    rolled_ranges,
    status_of,
    tools_for,
)
from tests.runner.test_asking_the_broker import Leadership, rounds_of

NAME = "orders-0"


class Away(MemoryStore):
    """A store that does not answer while it is away."""

    is_away = False

    def __init__(self) -> None:
        super().__init__(before=self._answer)

    def _answer(self, _operation: str, _key: str) -> None:
        if self.is_away:
            raise StoreUnavailable("no answer")


@dataclass
class Site:
    context: RunContext
    facts: Leadership
    store: Away
    rounds: ArchiveLoop
    directory: Path

    def lost(self, rounds: int = 1) -> list[tuple[int, int]]:
        """What so many rounds tell to be lost, by the log, the metric and the board."""
        sample = self.context.metrics.registry.get_sample_value
        before = sample("tiered_sidecar_lost_offsets_total") or 0
        with capture_logs() as logs:
            for _ in range(rounds):
                self.rounds.run_once()
        found = [(line["from_offset"], line["to_offset"]) for line in logs if line["event"] == "offsets_lost"]
        counted = (sample("tiered_sidecar_lost_offsets_total") or 0) - before
        assert counted == sum(end_offset - base_offset for base_offset, end_offset in found)
        texts = [error.text for error in status_of(self.context).figures().errors if error.kind == "OffsetsLost"]
        assert all(any(f"{base} to {end - 1} are lost" in text for text in texts) for base, end in found)
        return found

    def retention(self, start_offset: int, reported: int | None = None) -> None:
        """The broker deletes segments up to one, and says so unless it says something else."""
        remove_offsets(self.directory, lambda offset: offset >= start_offset)
        self.facts.cluster_start_offset = start_offset if reported is None else reported


@contextmanager
def site(tmp_path: Path, **policy: Any) -> Iterator[Site]:
    log_dir, store = copy_partitions(tmp_path, NAME), Away()
    facts = Leadership(FileBrokerFacts([log_dir], assume_leader=True), cluster_start_offset=0)
    with tools_for(log_dir, store, tmp_path / "state", **policy) as context:
        context = replace(context, facts=facts)
        yield Site(context, facts, store, rounds_of(context, log_dir), log_dir / NAME)
        context.pinned.release()


@pytest.fixture
def idle(tmp_path: Path) -> Iterator[Site]:
    """Nothing has rolled: all there is lies in the active segment, which begins at 504."""
    with site(tmp_path) as found:
        remove_offsets(found.directory, lambda offset: offset == 504)
        found.facts.cluster_start_offset = 504
        assert found.lost() == []
        yield found


def roll_and_delete(directory: Path, new_base_offset: int) -> None:
    """What retention does to an idle log: one step, no rolled segment is ever to be seen."""
    remove_offsets(directory, lambda _offset: False)
    (directory / f"{new_base_offset:020d}.log").touch()


def test_segments_that_retention_took_while_the_store_was_away_from_the_beginning_are_reported(tmp_path: Path) -> None:
    with site(tmp_path) as found:
        found.store.is_away = True
        assert found.lost(2) == []  # there may be an archive
        found.retention(248)
        assert found.lost() == []
        found.retention(504)
        found.store.is_away = False
        assert found.lost() == [(0, 504)]
        assert found.lost() == []
        expected = [span for span in rolled_ranges(found.directory.parent, NAME) if span[0] >= 504]
        assert ranges(archived_states(found.store)[NAME]) == expected


def test_what_is_archived_before_the_broker_says_that_retention_took_the_rest_is_no_loss(tmp_path: Path) -> None:
    with site(tmp_path) as found:
        found.store.is_away = True
        assert found.lost() == []
        found.store.is_away = False
        found.retention(248, reported=0)  # The broker was asked before its retention: this may be DeleteRecords yet.
        assert found.lost() == []
        assert archived_states(found.store)[NAME].start_offset == 248
        found.retention(504)
        assert found.lost(2) == [(0, 248)]


@pytest.mark.parametrize("reported", [True, False], ids=["a leader is asked", "files only"])
def test_an_active_segment_that_was_rolled_and_deleted_in_one_step_is_reported(idle: Site, reported: bool) -> None:
    for base_offset, new_base_offset in ((504, 700), (700, 900)):
        roll_and_delete(idle.directory, new_base_offset)
        idle.facts.cluster_start_offset = new_base_offset if reported else None
        assert idle.lost(2) == [(base_offset, new_base_offset)]
    timestamp_s = idle.context.metrics.registry.get_sample_value("tiered_sidecar_last_loss_timestamp_seconds")
    assert timestamp_s == idle.context.clock.now_ms() / 1000


def test_what_another_broker_has_archived_since_the_archive_was_read_is_no_loss(idle: Site, tmp_path: Path) -> None:
    other = copy_partitions(tmp_path / "other", NAME)
    with tools_for(other, idle.store, tmp_path / "other-state") as context:
        assert archive(context, other).errors == []
    end_offset = rolled_ranges(other, NAME)[-1][1]
    assert end_offset > 504
    roll_and_delete(idle.directory, end_offset)
    idle.facts.cluster_start_offset = end_offset
    assert idle.lost(2) == []


def test_records_that_were_deleted_on_purpose_are_no_loss(idle: Site) -> None:
    idle.facts.cluster_start_offset = 600
    assert idle.lost(2) == []
    roll_and_delete(idle.directory, 700)
    idle.facts.cluster_start_offset = 700
    assert idle.lost() == [(600, 700)]


def test_segments_that_went_with_deleted_records_are_no_loss(tmp_path: Path) -> None:
    with site(tmp_path) as found:
        found.store.is_away = True
        found.lost()
        found.retention(504, reported=510)
        assert found.lost() == []
        found.store.is_away = False
        assert found.lost(2) == []
        assert ranges(archived_states(found.store)[NAME])[0][0] == 504


@pytest.mark.parametrize(("reported", "lost"), [(510, []), (504, [(0, 504)])], ids=["DeleteRecords", "retention"])
def test_an_answer_that_is_older_than_the_listing_is_not_trusted(
    reported: int, lost: list[tuple[int, int]], tmp_path: Path
) -> None:
    with site(tmp_path) as found:
        found.store.is_away = True
        found.lost()
        found.store.is_away = False
        found.context.pinned.release()
        found.retention(504, reported=0)
        assert found.lost() == []
        found.facts.cluster_start_offset = reported
        assert found.lost(2) == lost


def test_what_was_gone_at_the_first_look_or_under_another_leader_is_not_ours(tmp_path: Path) -> None:
    with site(tmp_path) as found:
        found.retention(248)
        found.store.is_away = True
        assert found.lost() == []
        found.facts.leads = False
        found.lost()
        found.retention(504)
        found.lost()
        found.facts.leads, found.facts.epoch, found.store.is_away = True, 7, False
        assert found.lost(2) == []


def test_what_goes_while_nobody_leads_is_ours_if_nobody_else_led_before_we_do_again(tmp_path: Path) -> None:
    with site(tmp_path) as found:
        found.store.is_away = True
        assert found.lost(2) == []
        found.facts.leads = False
        assert found.lost() == []
        found.retention(504)
        found.facts.leads = True
        assert found.lost(2) == []
        found.store.is_away = False
        assert found.lost(2) == [(0, 504)]


def test_what_the_broker_still_has_in_its_own_tier_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with site(tmp_path) as found:
        monkeypatch.setattr(found.facts.files, "policy", lambda _topic: TopicPolicy(remote_storage_enable=True))
        found.store.is_away = True
        found.lost()
        found.context.pinned.release()
        found.retention(504, reported=248)
        found.store.is_away = False
        assert found.lost(3) == [(0, 248)]


def test_a_first_segment_that_a_cleaner_replaces_is_not_lost(tmp_path: Path) -> None:
    """Its `.swap` files are renamed one after the other."""
    with site(tmp_path) as found:
        found.store.is_away = True
        assert found.lost() == []
        found.store.is_away = False
        found.context.pinned.release()
        log = found.directory / f"{0:020d}.log"
        swap = log.rename(f"{log}.swap")
        assert found.lost(3) == []
        swap.rename(log)
        assert found.lost() == []
        assert archived_states(found.store)[NAME].start_offset == 0


def test_a_hole_above_an_archive_is_the_archives_to_tell(tmp_path: Path) -> None:
    with site(tmp_path, max_queue=2) as found:
        assert found.lost() == []
        end_offset = archived_states(found.store)[NAME].end_offset
        found.context.pinned.release()
        found.retention(868)
        with capture_logs() as logs:
            found.rounds.run_once()
        assert [(line["from_offset"], line["to_offset"]) for line in logs if line["event"] == "offsets_lost"] == [
            (end_offset, 868)
        ]
