"""The order in which records of one key win."""

from __future__ import annotations

from sidecar.compaction.rules import CompactionRules, malformed_version, version_of
from sidecar.compaction_strategy import Strategy
from sidecar.logformat.bodies.record import Record

SortKey = tuple[int, int, int]
"""(1 if there is a version, version or timestamp, offset): the greatest of a key's records wins."""


def sort_key(record: Record, rules: CompactionRules) -> SortKey:
    """The rank of a record among those of its key. Raises RecordRefused for a malformed version in strict mode."""
    match rules.effective_strategy:
        case Strategy.OFFSET:
            return 0, 0, record.offset
        case Strategy.TIMESTAMP:
            return 0, record.timestamp_ms, record.offset
        case Strategy.HEADER:
            found, version = version_of(record, rules.header_name)
            if found and version is None and rules.strict_headers:
                raise malformed_version(record.offset, rules.header_name)
            return (0, 0, record.offset) if version is None else (1, version, record.offset)
