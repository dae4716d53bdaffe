"""Which lineage of a partition a writer goes on with, or whether it begins a new one. Never a guess."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sidecar.archive.keys import NO_TOPIC_ID, Lineage
from sidecar.archive.seam import Seam, Verdict
from sidecar.archive.state import PartitionState, empty_state
from sidecar.errors import LineageUnknown
from sidecar.model import TopicPartition

REMEDY = (
    "What is archived stays readable where it is. To archive the local log from its own beginning, beside it, set store.url to "
    "another prefix"
)


@dataclass(frozen=True, slots=True)
class LineageChoice:
    """Where to write: the state to append to, and the topic id that the first commit must adopt, if any."""

    state: PartitionState
    adopt_topic_id: str | None = None
    reason: str = ""


def relevant(lineages: Sequence[Lineage], topic_id: str | None) -> tuple[Lineage, ...]:
    """The lineages whose states `choose_lineage` needs: another topic id's lineage never matters to a known id."""
    if topic_id is None:
        return tuple(lineages)
    return tuple(lineage for lineage in lineages if lineage.incarnation in {NO_TOPIC_ID, topic_id})


def choose_lineage(
    cluster_id: str,
    topic_partition: TopicPartition,
    topic_id: str | None,
    states: Sequence[PartitionState],
    seam: Callable[[PartitionState], Seam],
) -> LineageChoice:
    """Decide by topic id where it tells, else by the seam.

    Args:
        topic_id: of the local log, None where `partition.metadata` does not exist.
        states: of the lineages that are `relevant`; those without commits count as not there.
        seam: judges whether the local log continues an archived one.

    Raises:
        LineageUnknown: it cannot be shown which lineage the local log continues, or the log of the same topic id is shown
            not to continue it: it was truncated below what is archived.
    """
    begun = [state for state in states if state.next_number > 0]
    fresh = empty_state(Lineage(cluster_id, topic_partition, topic_id or NO_TOPIC_ID))
    if topic_id is None:
        return _without_id(topic_partition, begun, fresh, seam)
    same = require_one(begun, topic_id)
    if same is not None:
        require_continuation(same, topic_id, seam(same))
        return LineageChoice(same, reason=f"belongs to topic id {topic_id}")
    nameless = [state for state in begun if state.topic_id is None]
    if not nameless:
        return LineageChoice(fresh, reason="no lineage has this topic id yet")
    found = seam(nameless[0])
    if found.verdict is Verdict.PROVEN:
        return LineageChoice(nameless[0], adopt_topic_id=topic_id, reason=found.reason)
    if found.verdict is Verdict.CONTRADICTED:
        return LineageChoice(fresh, reason=f"another log than the one archived without topic id: {found.reason}")
    raise _unknown(topic_partition, nameless[0], found)


def require_one(states: Sequence[PartitionState], topic_id: str) -> PartitionState | None:
    """The lineage of a topic id among those of a partition, None if there is none. Raises LineageUnknown if there are two."""
    same = [state for state in states if state.next_number > 0 and state.topic_id == topic_id]
    if len(same) > 1:
        names = " and ".join(state.lineage.incarnation for state in same)
        raise LineageUnknown(
            f"{same[0].lineage.topic_partition}: lineages {names} both belong to topic id {topic_id}: one must be set aside"
        )
    return same[0] if same else None


def require_continuation(state: PartitionState, topic_id: str | None, found: Seam) -> None:
    """Raise LineageUnknown unless a local log with this topic id may be appended to an archived one, judged as `found`.

    Where the ids agree nothing more need be proven; but an unclean leader election truncates a log under its own id.
    """
    topic_partition = state.lineage.topic_partition
    if topic_id is None or state.topic_id != topic_id:
        if found.verdict is not Verdict.PROVEN:
            raise _unknown(topic_partition, state, found)
    elif found.verdict is Verdict.CONTRADICTED:
        raise LineageUnknown(
            f"{topic_partition}: the local log and the one archived below {state.lineage.root} have the same topic id, but "
            f"differ: {found.reason}. Offsets were truncated after they had been archived (an unclean leader election, or an "
            f"older copy of the disk). {REMEDY}"
        )


def _without_id(
    topic_partition: TopicPartition,
    begun: list[PartitionState],
    fresh: PartitionState,
    seam: Callable[[PartitionState], Seam],
) -> LineageChoice:
    if not begun:
        return LineageChoice(fresh, reason="nothing is archived yet")
    seams = [(state, seam(state)) for state in begun]
    proven = [(state, found) for state, found in seams if found.verdict is Verdict.PROVEN]
    if len(proven) == 1:
        state, found = proven[0]
        return LineageChoice(state, reason=found.reason)
    raise _unknown(topic_partition, *(proven or seams)[-1])


def _unknown(topic_partition: TopicPartition, state: PartitionState, found: Seam) -> LineageUnknown:
    return LineageUnknown(
        f"{topic_partition}: it cannot be shown that the local log continues the archived one below {state.lineage.root}, "
        f"which ends at offset {state.end_offset}: {found.reason}. {REMEDY}"
    )
