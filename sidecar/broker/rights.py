"""Rights that a broker with an authorizer wants us to have, and words for one that is missing.

Source: KafkaApis: handleTopicMetadataRequest, handleListOffsetRequest, handleDescribeConfigsRequest,
handleDescribeProducersRequest, handleDescribeLogDirsRequest.
"""

from __future__ import annotations

from collections.abc import Iterable

TOPIC_DENIED, CLUSTER_DENIED = "TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED"
DENIED = frozenset({TOPIC_DENIED, CLUSTER_DENIED})
DESCRIBE, DESCRIBE_CONFIGS, READ = "Describe", "DescribeConfigs", "Read"
CLUSTER = ""
"""In place of a topic's name: the right is one on the cluster."""


def problem_words(name: str, operation: str, topic: str = CLUSTER) -> str:
    """Kafka's name of an error; where it says that a right is missing, which one, and how to give it."""
    if name not in DENIED:
        return name
    where = f"topic {topic}" if topic else "the cluster"
    option = f"--topic {topic}" if topic else "--cluster"
    return (
        f"{name}: our user is not authorized; allow it {operation} on {where} "
        f"(kafka-acls.sh --add --allow-principal User:... --operation {operation} {option})"
    )


def is_denied(words: str) -> bool:
    """Whether these `problem_words` say that a right is missing."""
    return words.partition(":")[0] in DENIED


def missing_right(problems: Iterable[str], effect: str) -> tuple[str, ...]:
    """One sentence for all topics that lack the same right, with one of them as an example; none if none does.

    Args:
        problems: of `problem_words`, all of one operation.
        effect: what follows.
    """
    denied = sorted(filter(is_denied, problems))
    if not denied:
        return ()
    more = f", and on {len(denied) - 1} more" if len(denied) > 1 else ""
    return (f"{denied[0]}{more}; until then {effect}",)
