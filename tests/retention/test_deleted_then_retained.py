"""DeleteRecords went into a segment, and retention moved the log start on before the next commit: still deleted on purpose."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Event

import pytest
from structlog.testing import capture_logs

from sidecar.archive.actions import Action, LossReason, Lost
from sidecar.archive.commit import Writer
from sidecar.archive.state import Hole, PartitionState
from sidecar.commits.commit_log import CommitConflict, CommitLog
from sidecar.retention.deleted_records import lost_below
from tests.fakes.manual_clock import ManualClock
from tests.retention.test_loss_tracker import NAME, Site, roll_and_delete, site
from tests.runner.rig import archived_states, ranges
from tests.runner.test_asking_the_broker import rounds_of
from tests.runner.waiting import within

RETRY_S, WAIT_S = 60.0, 60.0
ACTIVE = 964
"""Where the active segment begins."""


@pytest.fixture(params=[0.0, RETRY_S], ids=["planned at each look", "resting"])
def away(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Site]:
    """All is planned and held open, and the store takes nothing."""
    with site(tmp_path, retry_wait_s=request.param, record_lost=True) as found:
        answer = found.store.before
        found.store.before = lambda operation, key: answer(operation, key) if operation == "upload" else None
        found.store.is_away = True
        assert found.lost() == []
        yield found


def back(found: Site) -> list[tuple[str, int, int]]:
    """The store is back, and all is archived: what is reported of what is gone."""
    found.store.is_away = False
    clock = found.context.clock
    assert isinstance(clock, ManualClock)
    with capture_logs() as logs:
        for _ in range(3):
            clock.advance_ms(int(RETRY_S * 1000) + 1)
            assert found.rounds.run_once().errors == []
    events = {"offsets_lost", "deleted_before_archived"}
    return [(line["event"], line["from_offset"], line["to_offset"]) for line in logs if line["event"] in events]


def test_what_was_held_is_archived_as_deleted(away: Site) -> None:
    away.facts.cluster_start_offset = 300
    assert away.lost() == []
    away.retention(504)
    assert away.lost() == []
    assert back(away) == []
    state = archived_states(away.store)[NAME]
    assert (ranges(state)[0][0], state.deleted_before_offset, state.holes) == (0, 300, ())


def test_what_retention_took_alone_is_archived_as_live(away: Site) -> None:
    for start_offset in (248, 504):
        away.retention(start_offset)
        assert away.lost() == []
    assert back(away) == []
    state = archived_states(away.store)[NAME]
    assert (ranges(state)[0][0], state.deleted_before_offset) == (0, 0)


def test_of_what_went_before_the_first_commit_only_what_retention_took_is_lost(away: Site) -> None:
    for directory_start, start_offset in ((248, 248), (248, 300), (504, 504)):
        away.retention(directory_start, reported=start_offset)
        assert away.lost() == []
    away.context.pinned.release()
    assert back(away) == [("offsets_lost", 0, 248), ("offsets_lost", 300, 504)]
    assert ranges(archived_states(away.store)[NAME])[0][0] == 504


@pytest.fixture
def behind(tmp_path: Path) -> Iterator[Site]:
    """All that has rolled is archived but the last three segments."""
    with site(tmp_path, record_lost=True) as found:
        bases = sorted(int(path.stem) for path in found.directory.glob("*.log"))
        aside = tmp_path / "aside"
        aside.mkdir()
        for path in found.directory.iterdir():
            if path.name[:20].isdigit() and int(path.name[:20]) > bases[-4]:
                path.rename(aside / path.name)
        assert found.lost() == []
        for path in aside.iterdir():
            path.rename(found.directory / path.name)
        assert archived_states(found.store)[NAME].end_offset == bases[-4]
        yield found


def test_a_hole_is_deleted_up_to_there_and_lost_above(behind: Site) -> None:
    base_offset = archived_states(behind.store)[NAME].end_offset or 0
    deleted_end = base_offset + 5
    behind.store.is_away = True
    behind.facts.cluster_start_offset = deleted_end
    assert behind.lost() == []
    behind.context.pinned.release()
    behind.retention(ACTIVE)
    reported = back(behind)
    assert reported == [("deleted_before_archived", base_offset, deleted_end), ("offsets_lost", deleted_end, ACTIVE)]
    state = archived_states(behind.store)[NAME]
    holes = Hole(base_offset, deleted_end, LossReason.DELETED_FIRST), Hole(deleted_end, ACTIVE, LossReason.NOT_ON_DISK)
    assert (state.holes, state.deleted_before_offset) == (holes, deleted_end)
    lost = behind.context.metrics.registry.get_sample_value("tiered_sidecar_lost_offsets_total")
    assert lost == ACTIVE - deleted_end


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_log_that_was_emptied_has_lost_nothing_when_its_active_segment_goes(behind: Site, is_seen: bool) -> None:
    assert back(behind) == []
    behind.context.pinned.release()
    behind.facts.cluster_start_offset = ACTIVE + 6 if is_seen else 0
    assert back(behind) == []
    assert archived_states(behind.store)[NAME].deleted_before_offset == 0
    roll_and_delete(behind.directory, ACTIVE + 6)
    behind.facts.cluster_start_offset = ACTIVE + 6
    assert back(behind) == [("deleted_before_archived" if is_seen else "offsets_lost", ACTIVE, ACTIVE + 6)]
    assert archived_states(behind.store)[NAME].deleted_before_offset == (ACTIVE + 6 if is_seen else 0)


def test_what_goes_while_an_upload_hangs_is_archived_as_deleted(tmp_path: Path) -> None:
    hangs, goes_on = Event(), Event()

    def hang(operation: str, _key: str) -> None:
        if operation == "upload" and not hangs.is_set():
            hangs.set()
            assert goes_on.wait(WAIT_S)

    with site(tmp_path, uploads_ahead=1) as found:
        found.store.before = hang
        with rounds_of(found.context, found.directory.parent) as loop:
            try:
                loop.begin_check()
                loop.drive(within(WAIT_S, hangs.is_set))
                found.facts.cluster_start_offset = 300
                loop.cycle()
                found.retention(504)
                loop.cycle()
            finally:
                goes_on.set()
            assert loop.finish().errors == []
        state = archived_states(found.store)[NAME]
        assert (ranges(state)[0][0], state.deleted_before_offset, state.holes) == (0, 300, ())


def test_an_answer_that_is_newer_than_the_listing_shows_no_deletion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention rolled and took the active segment while another writer's commit makes the partition plan again."""
    with site(tmp_path, record_lost=True) as found:
        append, calls = CommitLog.append, []

        def overtaken(
            log: CommitLog, actions: Sequence[Action], writer: Writer, state: PartitionState
        ) -> PartitionState:
            calls.append(actions)
            if len(calls) == 1:
                roll_and_delete(found.directory, ACTIVE + 6)
                found.facts.cluster_start_offset = ACTIVE + 6
                raise CommitConflict("another was first", state)
            return append(log, actions, writer, state)

        monkeypatch.setattr(CommitLog, "append", overtaken)
        for _ in range(3):
            assert found.rounds.run_once().errors == []
        state = archived_states(found.store)[NAME]
        assert (ranges(state)[0][0], state.deleted_before_offset) == (0, 0)
        assert state.holes == (Hole(ACTIVE, ACTIVE + 6, LossReason.NOT_ON_DISK),)


@pytest.mark.parametrize(
    ("deleted_end", "said"),
    [
        (0, [(10, 20, LossReason.NOT_ON_DISK)]),
        (15, [(10, 15, LossReason.DELETED_FIRST), (15, 20, LossReason.NOT_ON_DISK)]),
        (30, [(10, 20, LossReason.DELETED_FIRST)]),
    ],
)
def test_a_gap_below_what_was_deleted_on_purpose_is_not_lost(
    deleted_end: int, said: list[tuple[int, int, LossReason]]
) -> None:
    assert lost_below((10, 20), deleted_end) == [Lost(*found) for found in said]
