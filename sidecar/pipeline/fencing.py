"""Who may write to a partition's archive: the broker that leads it, as long as no later leader has committed."""

from __future__ import annotations

from sidecar import __version__
from sidecar.archive.commit import Writer
from sidecar.archive.state import PartitionState
from sidecar.errors import Fenced, SegmentChanged
from sidecar.model import PartitionFiles
from sidecar.partition.facts import PartitionFacts
from sidecar.pipeline.tools import Tools


def require_not_fenced(facts: PartitionFacts, state: PartitionState) -> None:
    """Raise Fenced if a writer with a higher leader epoch has committed.

    The commit log would refuse the commit too, but only after gigabytes were uploaded for it, every round anew.
    """
    if facts.leader_epoch < state.highest_leader_epoch:
        raise Fenced(
            f"{facts.topic_partition}: this broker knows leader epoch {facts.leader_epoch}, the archive below "
            f"{state.lineage.root} has a commit under leader epoch {state.highest_leader_epoch}: another broker leads; "
            f"nothing was uploaded"
        )


def require_leadership(
    tools: Tools, files: PartitionFiles, planned: PartitionFacts, end_offset: int = 0
) -> PartitionFacts:
    """Return the facts as they are now, with the leader's log start.

    Raise Fenced unless this broker still leads under the leader epoch of the plan, BrokerUnavailable if that is unknown.

    SegmentChanged where what is stable ends below `end_offset` now. Under one leader epoch it never falls while the leader runs:
    the topic was made anew, its epochs too, or the leader came back with less, which beside ZooKeeper needs no new epoch.
    """
    now = tools.facts.confirm(files)
    if not now.leads or now.leader_epoch != planned.leader_epoch:
        raise Fenced(
            f"{files.topic_partition}: leadership changed during the upload (leader epoch {planned.leader_epoch} then, "
            f"{now.leader_epoch if now.leads else 'not leading'} now); nothing was committed"
        )
    if now.stable_end_offset < end_offset:
        raise SegmentChanged(
            f"{files.topic_partition}: the last stable offset was {planned.stable_end_offset} when offsets up to {end_offset} were "
            f"read, and is {now.stable_end_offset} now: the topic was made anew, or the leader came back with less of its log; "
            f"nothing was committed, and it is tried again"
        )
    return now


def writer_of(tools: Tools, facts: PartitionFacts) -> Writer:
    """This process, as its commits name it."""
    return Writer(tools.facts.broker_id(), facts.leader_epoch, tools.instance, f"tiered-sidecar {__version__}")
