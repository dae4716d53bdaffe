"""Rights that a broker with an authorizer wants us to have, and words for one that is missing.

Source: KafkaApis: handleTopicMetadataRequest, handleListOffsetRequest, handleDescribeConfigsRequest,
handleDescribeProducersRequest, handleDescribeLogDirsRequest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

TOPIC_DENIED, CLUSTER_DENIED = "TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED"
DENIED = frozenset({TOPIC_DENIED, CLUSTER_DENIED})
DESCRIBE, DESCRIBE_CONFIGS, READ = "Describe", "DescribeConfigs", "Read"
CLUSTER = ""
"""In place of a topic's name: the right is one on the cluster."""


@dataclass(frozen=True, slots=True, order=True)
class RequestProblem:
    """A broker's error for a topic or for the cluster. `name`: Kafka's. `operation`: what we wanted to do there."""

    name: str
    operation: str
    topic: str = CLUSTER

    @property
    def is_denied(self) -> bool:
        """Whether a right is missing."""
        return self.name in DENIED

    def __str__(self) -> str:
        """Kafka's name of the error; where a right is missing, which one, and how to give it."""
        if not self.is_denied:
            return self.name
        where = f"topic {self.topic}" if self.topic else "the cluster"
        option = f"--topic {self.topic}" if self.topic else "--cluster"
        return (
            f"{self.name}: our user is not authorized; allow it {self.operation} on {where} "
            f"(kafka-acls.sh --add --allow-principal User:... --operation {self.operation} {option})"
        )


def missing_right(problems: Iterable[RequestProblem], effect: str) -> tuple[str, ...]:
    """One sentence for all topics that lack the same right, with one of them as an example; none if none does.

    Args:
        problems: all of one operation.
        effect: what follows.
    """
    denied = sorted(problem for problem in problems if problem.is_denied)
    if not denied:
        return ()
    more = f", and on {len(denied) - 1} more" if len(denied) > 1 else ""
    return (f"{denied[0]}{more}; until then {effect}",)
