"""What was seen to go stays to be reported: over leaders in between, restarts, and what descriptors still have of it."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from sidecar.broker.files import FileBrokerFacts
from sidecar.host.archive_cache import ArchiveCache
from sidecar.model import TopicPartition
from tests.retention.test_loss_tracker import NAME, Away, Site, roll_and_delete, site
from tests.runner.rig import archived_states, copy_partitions, ranges, tools_for
from tests.runner.test_asking_the_broker import Leadership, rounds_of


class Full(Away):
    """A store that takes nothing while it is away, but can be read."""

    def _answer(self, operation: str, key: str) -> None:
        if operation == "upload":
            super()._answer(operation, key)


@contextmanager
def process(log_dir: Path, store: Away, state_dir: Path) -> Iterator[Site]:
    """One life of a sidecar beside a log that stays."""
    facts = Leadership(FileBrokerFacts([log_dir], assume_leader=True), cluster_start_offset=0)
    with tools_for(log_dir, store, state_dir) as context, closing(ArchiveCache(state_dir)) as memory:
        context = replace(context, facts=facts, memory=memory)
        yield Site(context, facts, store, rounds_of(context, log_dir), log_dir / NAME)


def see_the_beginning_go(found: Site) -> None:
    found.store.is_away = True
    assert found.lost() == []
    found.retention(504)
    assert found.lost(2) == []


@pytest.mark.parametrize("epoch", [None, 9], ids=["the same epoch", "a later one"])
def test_a_look_without_leadership_forgets_nothing_that_was_seen_to_go(epoch: int | None, tmp_path: Path) -> None:
    with site(tmp_path) as found:
        see_the_beginning_go(found)
        found.facts.leads = False
        assert found.lost() == []
        found.facts.leads, found.facts.epoch = True, epoch
        assert found.lost() == []
        found.store.is_away = False
        assert found.lost() == [(0, 504)]
        assert found.lost(2) == []


def test_nothing_is_reported_while_another_broker_leads(tmp_path: Path) -> None:
    with site(tmp_path) as found:
        see_the_beginning_go(found)
        found.facts.leads, found.store.is_away = False, False
        assert found.lost(2) == []


def test_what_another_leaders_sidecar_has_archived_is_not_lost(tmp_path: Path) -> None:
    with site(tmp_path) as found, site(tmp_path / "other") as other:
        see_the_beginning_go(found)
        found.facts.leads = False
        assert found.lost() == []
        assert other.lost() == []
        found.store.objects.update(other.store.objects)
        assert ranges(archived_states(other.store)[NAME])[0][0] == 0
        found.facts.leads, found.facts.epoch, found.store.is_away = True, 9, False
        assert found.lost(2) == []


def test_below_where_another_leaders_sidecar_began_it_is(tmp_path: Path) -> None:
    with site(tmp_path) as found, site(tmp_path / "other") as other:
        see_the_beginning_go(found)
        found.facts.leads = False
        assert found.lost() == []
        other.retention(504)
        assert other.lost() == []
        found.store.objects.update(other.store.objects)
        found.facts.leads, found.facts.epoch, found.store.is_away = True, 9, False
        assert found.lost(2) == [(0, 504)]


@pytest.mark.parametrize("kind", [Away, Full], ids=["gone", "held open, as long as the process lives"])
def test_a_restart_forgets_nothing_that_was_seen_to_go(kind: type[Away], tmp_path: Path) -> None:
    log_dir, store, state_dir = copy_partitions(tmp_path, NAME), kind(), tmp_path / "state"
    with process(log_dir, store, state_dir) as found:
        see_the_beginning_go(found)
        assert (found.context.pinned.unlinked_bytes() > 0) == (kind is Full)
    with process(log_dir, store, state_dir) as found:
        found.facts.cluster_start_offset = 504
        reported = found.lost()
        store.is_away = False
        assert reported + found.lost() == [(0, 504)]
    with process(log_dir, store, state_dir) as found:
        assert found.lost(2) == []
        assert found.context.memory.gone(TopicPartition("orders", 0)) is None


def test_what_is_archived_from_descriptors_is_reported_by_no_later_process(tmp_path: Path) -> None:
    log_dir, store, state_dir = copy_partitions(tmp_path, NAME), Full(), tmp_path / "state"
    with process(log_dir, store, state_dir) as found:
        see_the_beginning_go(found)
        store.is_away = False
        assert found.lost() == []
        assert ranges(archived_states(store)[NAME])[0][0] == 0
    with process(log_dir, store, state_dir) as found:
        assert found.lost(2) == []


def test_a_topic_that_was_made_anew_has_lost_nothing(tmp_path: Path) -> None:
    log_dir, store, state_dir = copy_partitions(tmp_path, NAME), Away(), tmp_path / "state"
    with process(log_dir, store, state_dir) as found:
        see_the_beginning_go(found)
    metadata = log_dir / NAME / "partition.metadata"
    metadata.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    with process(log_dir, store, state_dir) as found:
        store.is_away = False
        found.facts.cluster_start_offset = 504
        assert found.lost(2) == []


@pytest.mark.parametrize(("name", "lost"), [("moved", [(0, 504)]), ("logs", [])], ids=["elsewhere", "in its place"])
def test_where_no_topic_id_tells_a_log_in_another_log_dir_may_be_the_one_that_was_seen_to_go(
    name: str, lost: list[tuple[int, int]], tmp_path: Path
) -> None:
    log_dir, store, state_dir = copy_partitions(tmp_path, NAME), Away(), tmp_path / "state"
    (log_dir / NAME / "partition.metadata").unlink(missing_ok=True)
    with process(log_dir, store, state_dir) as found:
        see_the_beginning_go(found)
    copy = shutil.copytree(log_dir, tmp_path / "copy")
    shutil.rmtree(log_dir)
    with process(copy.rename(log_dir.with_name(name) if lost else log_dir), store, state_dir) as found:
        store.is_away = False
        found.facts.cluster_start_offset = 504
        assert found.lost(2) == lost


def test_losses_under_two_leaderships_are_distinguished(tmp_path: Path) -> None:
    with site(tmp_path) as found:
        see_the_beginning_go(found)
        found.facts.leads = False
        assert found.lost() == []
        found.retention(724)  # the leader's own sidecar saw that
        assert found.lost() == []
        found.facts.leads, found.facts.epoch = True, 7
        assert found.lost() == []
        found.context.pinned.release()
        roll_and_delete(found.directory, 1200)
        found.facts.cluster_start_offset = 1200
        assert found.lost() == []
        found.store.is_away = False
        assert sorted(found.lost()) == [(0, 504), (724, 1200)]


@pytest.mark.parametrize("column", ["log", "spans"])
@pytest.mark.parametrize("text", ["", "[", "[" * 9999, "{}", "[[1]]", "null", '[["a", 2]]'])
def test_a_note_that_nobody_understands_is_none(column: str, text: str, tmp_path: Path) -> None:
    log_dir, store, state_dir = copy_partitions(tmp_path, NAME), Away(), tmp_path / "state"
    with process(log_dir, store, state_dir) as found:
        see_the_beginning_go(found)
    with closing(sqlite3.connect(state_dir / "archives.sqlite", isolation_level=None)) as connection:
        given = (text, None) if column == "log" else (None, text)
        done = connection.execute("UPDATE gone SET log = coalesce(?, log), spans = coalesce(?, spans)", given)
        assert done.rowcount == 1
    store.is_away = False
    with process(log_dir, store, state_dir) as found, capture_logs() as logs:
        found.facts.cluster_start_offset = 504
        found.rounds.run_once()
    assert [line for line in logs if line["log_level"] == "error"] == []
