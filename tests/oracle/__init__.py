"""Kafka's own classes as the oracle of the conformance suites: one JVM, many requests, no broker.

`Oracle` replays, recovers, cleans and dumps partition directories with the 4.3.0 jars; `random_segments` makes the directories.
"""

from __future__ import annotations

from tests.oracle.client import Oracle
from tests.oracle.process import OracleError, OracleRefused
from tests.oracle.results import (
    Boundary,
    CleanedLog,
    CleanedRound,
    CleanRound,
    DumpedBatch,
    DumpedRecord,
    RecoveredSegment,
    Replay,
)

__all__ = [
    "Boundary",
    "CleanRound",
    "CleanedLog",
    "CleanedRound",
    "DumpedBatch",
    "DumpedRecord",
    "Oracle",
    "OracleError",
    "OracleRefused",
    "RecoveredSegment",
    "Replay",
]
