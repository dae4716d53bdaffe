"""Schedules that once ended with a finding, each with what it was."""

from __future__ import annotations

from typing import Final

from tests.simulation.cluster import LogShape
from tests.simulation.schedule import Append, NewLeader, Retention, Round, Schedule

REGRESSIONS: Final[dict[str, Schedule]] = {
    # Of the model: the archive ends with a gap, and its last segment is gone from the new leader's log, which has no topic id.
    # The sidecar is right to stop (LineageUnknown).
    "a gap at the archive's end, and a new leader without a topic id": Schedule(
        seed=9820,
        steps=(
            Append(seed=1557903675, batches=3),
            Round(is_late=True),
            Append(seed=3851503208, batches=3),
            Retention(broker=0, segments=9),
            Retention(broker=1),
            Round(is_late=True),
            NewLeader(),
        ),
        shape=LogShape(roll_batches=(2, 3)),
        has_topic_id=False,
    ),
}
