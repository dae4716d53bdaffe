"""What a commit says is reported once, also where the store's answer to it was lost."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from sidecar.broker.files import FileBrokerFacts
from sidecar.errors import OutcomeUnknown, StoreUnavailable
from sidecar.model import ObjectKey
from sidecar.partition.domain_events import DomainEvent, OffsetsLost
from tests.fakes.memory_store import MemoryStore
from tests.retention.test_deleted_records import EPOCH_START_OFFSET, commits_that_say_so
from tests.runner.rig import archived_states, copy_partitions, remove_offsets, rolled_ranges, rounds_over, tools_for
from tests.runner.test_asking_the_broker import Leadership, rounds_of


class LosingAnswers(MemoryStore):
    """A store that does what it is asked, and says nothing of the commits that a test names."""

    silent_on = "/none"

    def put_if_absent(self, key: ObjectKey, body: bytes) -> None:
        super().put_if_absent(key, body)
        if self.silent_on in key:
            raise OutcomeUnknown(f"{key}: no answer")

    def read(self, key: ObjectKey, position: int = 0, size_bytes: int | None = None, *, whole: bool = False) -> bytes:
        if self.silent_on in key and key in self.objects:
            raise StoreUnavailable(f"{key}: no answer")
        return super().read(key, position, size_bytes, whole=whole)


@pytest.mark.parametrize("starts_again", [False, True])
def test_a_commit_without_an_answer_is_reported_once_it_is_found_to_stand(starts_again: bool, tmp_path: Path) -> None:
    log_dir, store = copy_partitions(tmp_path, "orders-0"), LosingAnswers()
    bases = sorted(int(path.stem) for path in (log_dir / "orders-0").glob("*.log"))
    kept = next(base for base in bases if base > EPOCH_START_OFFSET)
    remove_offsets(log_dir / "orders-0", lambda offset: offset >= kept)
    facts = Leadership(FileBrokerFacts([log_dir], assume_leader=True), cluster_start_offset=kept + 5)
    reported_by_round: list[list[int]] = []
    with ExitStack() as processes:
        rounds = None
        for silent_on in ("/commits/", "/none", "/none"):
            store.silent_on = silent_on
            if rounds is None or starts_again:
                processes.close()
                context = processes.enter_context(tools_for(log_dir, store, tmp_path / "state"))
                rounds = rounds_of(replace(context, facts=facts), log_dir)
            with capture_logs() as logs:
                report = rounds.run_once()
            assert [type(error) for error in report.errors] == [OutcomeUnknown] * (silent_on != "/none")
            reported_by_round.append([log["before_offset"] for log in logs if log["event"] == "records_deleted"])
    assert archived_states(store)["orders-0"].deleted_before_offset == kept + 5
    assert commits_that_say_so(store) == [f"{0:020d}"]
    assert reported_by_round == [[], [kept + 5], []]


def test_a_hole_of_whose_commit_nobody_heard_is_reported(tmp_path: Path) -> None:
    log_dir, store = copy_partitions(tmp_path, "orders-0"), LosingAnswers()
    spans = rolled_ranges(log_dir, "orders-0")
    facts = Leadership(FileBrokerFacts([log_dir], assume_leader=True))
    with tools_for(log_dir, store, tmp_path / "state", max_queue=1, pins=1) as context:
        rounds = rounds_of(replace(context, facts=facts), log_dir)
        assert rounds.run_once().errors == []
        remove_offsets(log_dir / "orders-0", lambda offset: offset >= spans[3][0])
        facts.cluster_start_offset = spans[3][0]
        reported: list[tuple[int, int]] = []
        for silent_on in (f"/commits/{1:020d}", "/none", "/none"):
            store.silent_on = silent_on
            with capture_logs() as logs:
                report = rounds.run_once()
            assert [type(error) for error in report.errors] == [OutcomeUnknown] * (silent_on != "/none")
            reported += [(log["from_offset"], log["to_offset"]) for log in logs if log["event"] == "offsets_lost"]
    assert reported == [(spans[0][1], spans[3][0])]
    assert [(hole.base_offset, hole.end_offset) for hole in archived_states(store)["orders-0"].holes] == reported


@pytest.mark.parametrize("retention_comes", [False, True])
def test_a_loss_whose_commit_landed_is_reported_though_retention_took_the_segment(
    retention_comes: bool, tmp_path: Path
) -> None:
    log_dir, store = copy_partitions(tmp_path, "orders-0"), LosingAnswers()
    directory, seen = log_dir / "orders-0", list[DomainEvent]()
    remove_offsets(directory, lambda offset: offset != 140)
    with tools_for(log_dir, store, tmp_path / "state", record_lost=True, uploads_ahead=1) as context:
        rounds = rounds_over(replace(context, emit=seen.append), log_dir)
        store.silent_on = f"/commits/{0:020d}"
        rounds.run_once()
        assert context.journal.count() == 1
        store.silent_on = "/none"
        (hole,) = archived_states(store)["orders-0"].holes
        assert not [event for event in seen if isinstance(event, OffsetsLost)]
        # Another broker leads for a while, and its sidecar archives the rest.
        with tools_for(log_dir, store, tmp_path / "other", record_lost=True) as other:
            rounds_over(other, log_dir).run_once()
        if retention_comes:
            remove_offsets(directory, lambda offset: offset >= 362)
        for _ in range(3):
            rounds.run_once()
        assert context.journal.count() == 0
    reported = [(event.from_offset, event.to_offset) for event in seen if isinstance(event, OffsetsLost)]
    assert reported == [(hole.base_offset, hole.end_offset)] == [(140, 248)]
