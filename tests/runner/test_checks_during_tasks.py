"""A check beside tasks that last: what it may not make worse for them, nor hide."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from sidecar.archive.actions import LossReason
from sidecar.broker.files import FileBrokerFacts
from sidecar.discovery.scan import ScanProblem, ScanResult
from sidecar.errors import PartitionError
from sidecar.host.pinned_files import PinnedFiles
from sidecar.model import PartitionFiles, TopicPartition
from sidecar.partition.facts import PartitionFacts
from sidecar.runner.partition_archiver import PartitionArchiver
from tests.fakes.disk_with_room import DiskWithRoom
from tests.runner.rig import archived_states, ranges, remove_offsets, status_of
from tests.runner.test_asking_the_broker import Leadership
from tests.runner.test_changes_during_tasks import LOOK_S, Site, site

ORDERS, SECOND = "orders-0", "append-time-0"
STABLE = 10**9


@dataclass
class Asked(Leadership):
    """A leader whose answers are those of the last time that it was asked."""

    starts: dict[str, int] = field(default_factory=dict)
    reported: dict[str, int] = field(default_factory=dict)
    stable: dict[str, int] = field(default_factory=dict)

    def refresh(self) -> None:
        super().refresh()
        self.reported = dict(self.starts)

    def partition(self, files: PartitionFiles) -> PartitionFacts:
        name = str(files.topic_partition)
        stable = self.stable.get(name, STABLE)
        return replace(
            super().partition(files),
            leader_epoch=5,
            transactions_decided=True,
            transaction_open=stable < STABLE,
            cluster_start_offset=self.reported.get(name, 0),
            stable_end_offset=stable,
        )


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Site]:
    with site(tmp_path) as found:
        yield found


def asks(made: Site) -> Asked:
    """From here on a leader is asked."""
    facts = Asked(FileBrokerFacts([made.log_dir], assume_leader=True))
    object.__setattr__(made.context, "facts", facts)
    return facts


def archiver_of(made: Site) -> PartitionArchiver:
    """Of the second partition."""
    (found,) = (found for found in made.rounds.checks.archivers if str(found.topic_partition) == SECOND)
    return found


def test_a_turn_that_plans_anew_lists_the_directory_after_the_leader_was_asked(made: Site) -> None:
    facts = asks(made)
    made.roll(SECOND)
    made.hang.is_silent = True
    with capture_logs() as logs:
        made.begin("upload")
        made.hang.is_silent = False
        made.roll(SECOND)
        remove_offsets(made.log_dir / SECOND, lambda offset: offset >= 302)
        facts.starts[SECOND] = 302
        made.look()
        assert made.end().errors == []
        for _ in range(3):
            assert made.rounds.run_once().errors == []
    events = [line["event"] for line in logs]
    assert "records_deleted" not in events, "retention alone has moved the log start"
    assert events.count("offsets_lost") == 1
    state = archived_states(made.hang.store)[SECOND]
    assert (ranges(state), state.deleted_before_offset) == ([(0, 104)], 0)
    assert [(hole.base_offset, hole.end_offset, hole.reason) for hole in state.holes] == [
        (104, 302, LossReason.NOT_ON_DISK)
    ]


def test_looks_are_no_sign_of_life_of_a_turn_that_never_ends(made: Site) -> None:
    beats: list[int] = []
    object.__setattr__(made.context, "beat", lambda: beats.append(1))
    made.begin("upload")
    made.look()
    before = len(beats)
    assert before > 0
    made.look()
    made.look()
    assert len(beats) == before


def test_where_descriptors_are_few_a_look_takes_none_from_the_turn_that_hangs(made: Site) -> None:
    few = PinnedFiles(4, files=DiskWithRoom())
    object.__setattr__(made.context, "pinned", few)
    made.begin("upload")
    before = set(few._pinned)
    expected = {("codecs-java-0", 0), (ORDERS, 0), (ORDERS, 140), (ORDERS, 248)}
    assert {(file.directory.name, int(file.path.stem)) for file in before} == expected
    made.hang.is_silent = True
    made.roll(ORDERS, SECOND)
    made.look()
    assert set(few._pinned) == before
    remove_offsets(made.log_dir / ORDERS, lambda offset: offset >= 362)
    assert made.end().errors == []
    assert ranges(archived_states(made.hang.store)[ORDERS])[0][0] == 0
    few.release()


@pytest.mark.parametrize("whole", [True, False], ids=["log dir", "partition"])
def test_a_look_that_cannot_list_a_busy_partition_forgets_nothing_of_it(made: Site, whole: bool) -> None:
    made.rounds.run_once()
    made.roll(ORDERS)
    made.begin("upload")
    scan = made.rounds.checks.scan
    error = PartitionError("Input/output error")

    def failing(doubted: Collection[Path] = ()) -> ScanResult:
        if whole:
            return ScanResult((), (ScanProblem(None, made.log_dir, error),))
        rest = tuple(found for found in scan(doubted).partitions if str(found.topic_partition) != ORDERS)
        return ScanResult(rest, (ScanProblem(TopicPartition("orders", 0), made.log_dir / ORDERS, error),))

    made.rounds.checks.scan = failing
    made.look()
    assert made.pending(ORDERS) == 1
    assert made.context.metrics.registry.get_sample_value("tiered_sidecar_pending_segments") == 1
    made.rounds.checks.scan = scan
    made.look()
    assert made.end().errors == []
    (runs,) = [
        found.extent.runs
        for found in status_of(made.context).figures().partitions
        if found.status.topic_partition.topic == "orders"
    ]
    assert [(run.base_offset, run.end_offset) for run in runs] == [(0, 868)]


@pytest.fixture
def last_in_line(made: Site) -> Site:
    """A partition waits for a transaction; its turns come last, so that it is busy as long as another's turn hangs."""
    facts = asks(made)
    made.rounds.run_once()
    made.roll(SECOND)
    made.rounds.run_once()
    facts.stable[SECOND] = 110
    made.roll(SECOND)
    made.rounds.run_once()
    made.roll(ORDERS)
    return made


def test_what_waits_for_long_is_reported_though_every_look_falls_into_its_turn(last_in_line: Site) -> None:
    with capture_logs() as logs:
        last_in_line.begin("upload")
        for _ in range(400 // LOOK_S):
            last_in_line.look()
        last_in_line.end()
        last_in_line.rounds.run_once()
    assert [line["event"] for line in logs if "segments_delayed" in line["event"]] == ["segments_delayed"]


def test_a_busy_partition_goes_on_telling_what_it_waits_for(last_in_line: Site) -> None:
    def reason() -> str:
        found = {
            str(found.status.topic_partition): found for found in status_of(last_in_line.context).figures().partitions
        }
        return found[SECOND].reason

    before = reason()
    assert "last stable offset 110" in before
    last_in_line.begin("upload")
    last_in_line.look()
    assert reason() == before


def test_a_turn_that_plans_anew_archives_what_a_look_held_and_retention_took(made: Site) -> None:
    facts = asks(made)
    made.roll(SECOND)
    made.rounds.run_once()
    archiver_of(made).known.forget()
    made.roll(ORDERS)
    made.hang.is_silent = True
    archiver_of(made)._idle = None
    made.begin("upload")
    made.hang.is_silent = False
    made.roll(SECOND)
    made.look()
    remove_offsets(made.log_dir / SECOND, lambda offset: offset >= 302)
    facts.starts[SECOND] = 302
    made.look()
    assert made.end().errors == []
    for _ in range(3):
        assert made.rounds.run_once().errors == []
    state = archived_states(made.hang.store)[SECOND]
    assert (ranges(state), state.holes) == ([(0, 104), (104, 302)], ())
