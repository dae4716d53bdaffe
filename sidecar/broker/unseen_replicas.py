"""Replicas that the broker reports and that this process does not see: another volume is mounted here, or one is missing.

A volume may be mounted elsewhere for this process, so the two are compared by what lies in the directories, not by path.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from pathlib import Path

from sidecar.broker.cluster_view import replicas_by_log_dir
from sidecar.broker.connection import BrokerConnection
from sidecar.logformat.files import live_partitions
from sidecar.model import TopicPartition
from sidecar.plurals import plural

ADVICE = (
    "mount the volume that the broker has there, and name its directory in broker.log_dirs; mount it at the directory that the "
    "broker's image declares as a VOLUME, not above it"
)
_LOOKS = 2
"""What was deleted between the answer and the listing is not reported again."""


def unseen_replicas(
    connection: BrokerConnection, node_id: int | str, log_dirs: Sequence[Path], is_chosen: Callable[[str], bool]
) -> str:
    """Where the broker has replicas that lie in none of the log dirs; "" if there are none.

    Also "" if the broker reports nothing to this user, and if a log dir cannot be listed, which the scan reports.

    Args:
        is_chosen: whether a topic is archived. Replicas of others do not count.

    Raises BrokerUnavailable.
    """
    reported: Mapping[str, frozenset[TopicPartition]] = {}
    unseen: dict[str, frozenset[TopicPartition]] = {}
    seen = frozenset[TopicPartition]()
    for _ in range(_LOOKS):
        reported = replicas_by_log_dir(connection, node_id)
        try:
            seen |= _live_replicas(log_dirs)
        except OSError:
            return ""
        chosen = {path: filter(lambda found: is_chosen(found.topic), replicas) for path, replicas in reported.items()}
        unseen = {path: found for path, replicas in chosen.items() if (found := frozenset(replicas) - seen)}
        if not unseen:
            return ""
    return "; ".join(
        f"{len(replicas)} of {plural(len(reported[path]), 'replica')} that the broker reports in {path} cannot be found in "
        f"{', '.join(map(str, log_dirs))} as this process sees it, such as {min(replicas)}"
        for path, replicas in sorted(unseen.items())
    )


def _live_replicas(log_dirs: Sequence[Path]) -> Set[TopicPartition]:
    """Replicas with a directory here. Raises OSError for a log dir that is there and cannot be listed."""
    found: set[TopicPartition] = set()
    for log_dir in log_dirs:
        with suppress(FileNotFoundError):
            found |= live_partitions(log_dir)
    return found
