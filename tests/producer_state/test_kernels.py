"""The compiled loops do what the plain rules say, on logs in which everything happens."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producer_state.digest import DigestBuilder, SegmentDigest, apply, merge
from producer_state.facts import INVALID_TXN_STATE, MALFORMED, NOT_ASCENDING, BatchFacts, BatchProblem
from producer_state.replay import replay
from producer_state.table import ProducerTable
from tests.producer_state.plain_rules import State, apply_all
from tests.producer_state.random_logs import Batch, RandomLog, data, digest_batches, facts_of, marker, random_log

SEEDS = st.integers(0, 2**32)
MANY = settings(max_examples=150, deadline=None)


@st.composite
def logs(draw: st.DrawFn) -> RandomLog:
    return random_log(
        draw(SEEDS),
        batches=draw(st.sampled_from((1, 8, 60, 150))),
        producers=draw(st.sampled_from((1, 3, 20, 100))),
        mixed=draw(st.booleans()),
        cleaned=draw(st.booleans()),
    )


def table_by_rules(log: RandomLog, end_offset: int) -> ProducerTable:
    state: State = {}
    apply_all(state, log.between(log.boundaries[0], end_offset))
    return ProducerTable.from_entries(end_offset, state.values())


def digests_of(log: RandomLog) -> list[SegmentDigest]:
    return [digest_batches(log.between(base, end), base, end) for base, end in log.segments()]


@MANY
@given(logs())
def test_replay_is_the_rules(log: RandomLog) -> None:
    state: State = {}
    expected = apply_all(state, log.facts)
    table, completed = replay(ProducerTable.blank(log.boundaries[0]), log.facts)
    assert table.entries() == ProducerTable.from_entries(0, state.values()).entries()
    assert list(completed) == expected


@MANY
@given(logs(), st.data())
def test_replay_can_stop_and_go_on_anywhere(log: RandomLog, draw: st.DataObject) -> None:
    cut = draw.draw(st.integers(0, len(log.facts)))
    whole, completed = replay(ProducerTable.blank(), log.facts)
    middle, completed_first = replay(ProducerTable.blank(), log.facts[:cut])
    end, completed_then = replay(middle, log.facts[cut:])
    assert end == whole
    assert completed_first + completed_then == completed


@MANY
@given(logs())
def test_fold_of_digests_is_replay_at_every_boundary(log: RandomLog) -> None:
    table = ProducerTable.blank(log.boundaries[0])
    for digest in digests_of(log):
        table = apply(table, digest)
        assert table == table_by_rules(log, digest.coverage.end_offset)


@MANY
@given(logs(), st.randoms(use_true_random=False))
def test_any_bracketing_of_digests_gives_the_same(log: RandomLog, random: object) -> None:
    whole = digest_batches(log.facts, log.boundaries[0], log.boundaries[-1])
    parts = digests_of(log)
    while len(parts) > 1:
        at = random.randrange(len(parts) - 1)  # type: ignore[attr-defined]
        parts[at : at + 2] = [merge(parts[at], parts[at + 1])]
    assert parts in ([], [whole])


@MANY
@given(logs(), st.integers(1, 20))
def test_a_builder_takes_chunks_of_any_size(log: RandomLog, chunk: int) -> None:
    builder = DigestBuilder(log.boundaries[0])
    for first in range(0, len(log.facts), chunk):
        builder.add(log.facts[first : first + chunk])
    assert builder.finish(log.boundaries[-1]) == digest_batches(log.facts, log.boundaries[0], log.boundaries[-1])


@MANY
@given(logs())
def test_digests_survive_pickling(log: RandomLog) -> None:
    digest = digest_batches(log.facts, log.boundaries[0], log.boundaries[-1])
    assert pickle.loads(pickle.dumps(digest)) == digest  # noqa: S301


def plain_rules_problem(facts: BatchFacts) -> tuple[int, int] | None:
    try:
        apply_all({}, facts)
    except BatchProblem as error:
        return error.problem, error.offset
    return None


@MANY
@given(SEEDS, st.integers(0, 59), st.sampled_from(("plain", "malformed")), st.data())
def test_the_offending_batch_is_named_alike_by_all(seed: int, at: int, fault: str, draw: st.DataObject) -> None:
    log = random_log(seed, mixed=True)
    if at >= len(log.batches):
        return
    broken = copy.deepcopy(log.facts)
    if fault == "plain":
        broken.attributes[at] = 0
    else:
        broken.marker_type[at] = 7
    expected = plain_rules_problem(broken)
    cut = draw.draw(st.integers(0, len(broken)))
    start, end = log.boundaries[0], log.boundaries[-1]
    middle = int(broken.base_offset[cut]) if cut < len(broken) else end

    def fold() -> None:
        table = apply(ProducerTable.blank(start), digest_batches(broken[:cut], start, middle))
        apply(table, digest_batches(broken[cut:], middle, end))

    def merged() -> None:
        merge(digest_batches(broken[:cut], start, middle), digest_batches(broken[cut:], middle, end))

    for way in (lambda: replay(ProducerTable.blank(), broken), fold, merged):
        if expected is None:
            way()
            continue
        with pytest.raises(BatchProblem) as found:
            way()
        assert found.value.problem in {INVALID_TXN_STATE, MALFORMED}
        if way is not merged and way is not fold:
            assert (found.value.problem, found.value.offset) == expected


def test_many_producers_make_the_tables_grow() -> None:
    batches = [data(offset, producer_id=offset * 7919 % 5003) for offset in range(5003)]
    digest = digest_batches(facts_of(batches), 0, 5003)
    assert digest.rows["producer_id"].tolist() == list(range(5003))
    assert apply(ProducerTable.blank(), digest) == replay(ProducerTable.blank(), facts_of(batches))[0]


def test_batches_out_of_order_are_refused() -> None:
    with pytest.raises(BatchProblem, match=r"offset 3, producer 1: .*expected offset 5 or above"):
        digest_batches(facts_of([data(4, 1), data(3, 1)]), 0, 9)


def test_a_batch_below_the_segments_base_is_refused() -> None:
    with pytest.raises(BatchProblem) as found:
        digest_batches(facts_of([data(4, 1)]), 5, 9)
    assert found.value.problem == NOT_ASCENDING


def test_a_batch_at_or_above_the_next_base_is_refused() -> None:
    with pytest.raises(ValueError, match="beyond the end 5"):
        digest_batches(facts_of([data(4, 1, count=2)]), 0, 5)


def test_what_does_not_meet_is_not_put_together() -> None:
    with pytest.raises(ValueError, match="not adjacent"):
        merge(SegmentDigest.empty(0, 5), SegmentDigest.empty(6, 9))
    with pytest.raises(ValueError, match="a state at 5"):
        apply(ProducerTable.blank(5), SegmentDigest.empty(6, 9))


@pytest.mark.parametrize(
    ("batches", "end", "exact"),
    [
        ([data(0, 1, count=3), marker(3, 1)], 4, True),
        ([data(1, 1)], 2, False),
        ([data(0, 1)], 2, False),
        ([data(0, 1), data(2, 1)], 3, False),
        ([Batch(0, 2, 2, 1, 0, 0)], 3, False),
        ([Batch(0, 0, 1, 1, 0, 0, delete_horizon=True)], 1, False),
        ([Batch(4, 4, -1), Batch(9, 9, -1)], 10, True),  # wrappers of compressed legacy messages
        ([], 1, False),
    ],
)
def test_traces_of_a_cleaner_are_seen(batches: list[Batch], end: int, exact: bool) -> None:
    assert digest_batches(facts_of(batches), 0, end).exact is exact


def test_coverage_tells_the_number_of_batches_and_the_newest_timestamp() -> None:
    digest = digest_batches(facts_of([data(3, -1, -1, ts=90), data(4, 1, ts=50), marker(5, 2, ts=60)]), 3, 6)
    covered = digest.coverage
    assert (covered.batch_count, covered.max_timestamp_ms) == (3, 90)


def test_a_delete_horizon_does_not_hide_the_markers_own_time() -> None:
    facts = facts_of([marker(0, 2, ts=60)])
    facts.marker_timestamp_ms[0] = 75
    assert digest_batches(facts, 0, 1).rows["last_timestamp_ms"].tolist() == [75]
