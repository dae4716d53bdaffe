"""A broker's own tiering, with Kafka's test plugin that keeps segments in a directory."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

VERSION = "3.9.1"
"""The one whose test jars hold the plugin, and the last that starts on what 2.7.2 wrote."""

REQUIRED = frozenset({".log", ".index", ".timeindex", ".snapshot", ".leader_epoch_checkpoint"})
OPTIONAL = frozenset({".txnindex"})
# Where LocalTieredStorage, by default, keeps its files below the directory it is given.
_SUB_DIRECTORY = "kafka-tiered-storage"
_FILE = re.compile(r"(\d{20})-([\w-]{22})(\.\w+)")


def tiering_properties(storage: Path) -> dict[str, str]:
    """Server properties that switch the broker's tiering on, with short intervals."""
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        "remote.log.storage.manager.impl.prefix": "rsm.config.",
        "rsm.config.dir": str(storage),
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "remote.log.metadata.manager.impl.prefix": "rlmm.config.",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
        "remote.log.manager.task.interval.ms": "500",
        "remote.log.manager.task.retry.backoff.ms": "500",
        "remote.log.manager.task.retry.backoff.max.ms": "1000",
        "log.retention.check.interval.ms": "500",
        "log.initial.task.delay.ms": "500",
        "log.segment.delete.delay.ms": "500",
    }


def tiered_segments(storage: Path, partition: str) -> dict[int, dict[str, Path]]:
    """Complete segments of a partition in the plugin's directory: base offset -> suffix -> file.

    Source: LocalTieredStorage, RemoteLogSegmentFileset; the folder is `<topic>-<partition>-<topic id>`.
    """
    segments: dict[tuple[int, str], dict[str, Path]] = defaultdict(dict)
    for path in storage.glob(f"{_SUB_DIRECTORY}/{partition}-*/*"):
        found = _FILE.fullmatch(path.name)
        if found is None:
            raise ValueError(f"{path} is no file of a tiered segment")
        segments[int(found[1]), found[2]][found[3]] = path
    complete = {base: files for (base, _), files in segments.items() if files.keys() >= REQUIRED}
    for base, files in complete.items():
        if not files.keys() <= REQUIRED | OPTIONAL:
            raise ValueError(f"segment {base} has unexpected files: {sorted(files)}")
    return complete
