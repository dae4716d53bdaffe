"""Which lineage a writer goes on with."""

from __future__ import annotations

import pytest

from sidecar.archive.actions import Add, AdoptTopicId
from sidecar.archive.continuity import ContinuityCheck, Verdict, choose_lineage, relevant
from sidecar.archive.keys import Lineage
from sidecar.archive.state import PartitionState, empty_state
from sidecar.errors import LineageUnknown
from tests.archive.builders import CLUSTER_ID, LINEAGE, NAMELESS, PARTITION, TOPIC_ID, a_segment, after, an_id

OTHER_ID = an_id("other topic")
OTHER = Lineage(CLUSTER_ID, PARTITION, OTHER_ID)

NAMED_STATE = after(empty_state(LINEAGE), [Add(a_segment())])
OTHER_STATE = after(empty_state(OTHER), [Add(a_segment())])
NAMELESS_STATE = after(empty_state(NAMELESS), [Add(a_segment())])
ADOPTED_STATE = after(NAMELESS_STATE, [AdoptTopicId(TOPIC_ID)])


def choose(
    topic_id: str | None, *states: PartitionState, verdict: Verdict | dict[Lineage, Verdict] | None = None
) -> PartitionState:
    """Choose with a continuity check of this verdict; without one, the log must not be read."""

    def check(state: PartitionState) -> ContinuityCheck:
        assert verdict is not None, "the ids tell, the log is not to be read"
        found = verdict if isinstance(verdict, Verdict) else verdict[state.lineage]
        return ContinuityCheck(found, "because the test says so")

    return choose_lineage(CLUSTER_ID, PARTITION, topic_id, states, check)


def test_the_first_archive_of_a_partition() -> None:
    assert choose(TOPIC_ID) == empty_state(LINEAGE)
    assert choose(None) == empty_state(NAMELESS)
    assert choose(None, empty_state(NAMELESS)) == empty_state(NAMELESS)


@pytest.mark.parametrize("verdict", [Verdict.PROVEN, Verdict.PLAUSIBLE])
def test_a_known_id_goes_on_with_its_own_lineage(verdict: Verdict) -> None:
    assert choose(TOPIC_ID, NAMED_STATE, verdict=verdict) is NAMED_STATE
    assert choose(TOPIC_ID, ADOPTED_STATE, verdict=verdict) is ADOPTED_STATE
    assert choose(TOPIC_ID, ADOPTED_STATE, OTHER_STATE, verdict=verdict) is ADOPTED_STATE


def test_a_log_that_was_truncated_under_its_own_id_is_not_appended() -> None:
    with pytest.raises(
        LineageUnknown, match=r"same topic id, but differ: because the test says so.*an empty disk.*put it back"
    ):
        choose(TOPIC_ID, NAMED_STATE, verdict=Verdict.CONTRADICTED)


def test_a_topic_made_anew_begins_a_lineage_beside_the_old_one() -> None:
    assert choose(OTHER_ID, ADOPTED_STATE) == empty_state(OTHER)
    assert choose(TOPIC_ID, OTHER_STATE) == empty_state(LINEAGE)


def test_a_nameless_lineage_adopts_the_id_where_continuity_proves_it() -> None:
    assert choose(TOPIC_ID, NAMELESS_STATE, verdict=Verdict.PROVEN) is NAMELESS_STATE


def test_a_nameless_lineage_of_another_log_stays_as_it_is() -> None:
    assert choose(TOPIC_ID, NAMELESS_STATE, verdict=Verdict.CONTRADICTED) == empty_state(LINEAGE)


@pytest.mark.parametrize(
    ("topic_id", "state", "verdict"),
    [
        (TOPIC_ID, NAMELESS_STATE, Verdict.PLAUSIBLE),
        (None, NAMELESS_STATE, Verdict.PLAUSIBLE),
        (None, NAMELESS_STATE, Verdict.CONTRADICTED),
        (None, ADOPTED_STATE, Verdict.PLAUSIBLE),
        (None, NAMED_STATE, Verdict.CONTRADICTED),
    ],
)
def test_what_cannot_be_shown_is_not_guessed(topic_id: str | None, state: PartitionState, verdict: Verdict) -> None:
    with pytest.raises(LineageUnknown, match="cannot prove") as caught:
        choose(topic_id, state, verdict=verdict)
    assert "orders-3" in str(caught.value)
    assert "because the test says so" in str(caught.value)


def test_without_an_id_the_one_proven_lineage_goes_on() -> None:
    assert choose(None, NAMELESS_STATE, verdict=Verdict.PROVEN) is NAMELESS_STATE
    both = {LINEAGE: Verdict.PROVEN, OTHER: Verdict.CONTRADICTED}
    assert choose(None, NAMED_STATE, OTHER_STATE, verdict=both) is NAMED_STATE
    with pytest.raises(LineageUnknown):
        choose(None, NAMED_STATE, OTHER_STATE, verdict=Verdict.PROVEN)


def test_two_lineages_of_one_id_stop_the_partition() -> None:
    with pytest.raises(LineageUnknown, match="both belong"):
        choose(TOPIC_ID, NAMED_STATE, ADOPTED_STATE)


def test_only_relevant_lineages_need_to_be_read() -> None:
    assert relevant((NAMELESS, LINEAGE, OTHER), TOPIC_ID) == (NAMELESS, LINEAGE)
    assert relevant((NAMELESS, LINEAGE, OTHER), None) == (NAMELESS, LINEAGE, OTHER)
