"""A broker's snapshot that cannot be read: ours is archived, it is counted, and it is loud."""

from __future__ import annotations

from pathlib import Path

import structlog

from sidecar.model import PartName, SnapshotOrigin
from tests.fakes.memory_store import MemoryStore
from tests.golden import golden_copy
from tests.runner.rig import archive, archived_states, tools_for


def test_a_corrupt_snapshot_is_replaced_by_ours(tmp_path: Path) -> None:
    whole, damaged = (
        golden_copy("4.3.0", tmp_path / "whole") / "logs",
        golden_copy("4.3.0", tmp_path / "damaged") / "logs",
    )
    for snapshot in (damaged / "codecs-java-0").glob("*.snapshot"):
        content = snapshot.read_bytes()
        snapshot.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    parts = {}
    for log_dir in (whole, damaged):
        store = MemoryStore()
        with (
            tools_for(log_dir, store, tmp_path / "state" / log_dir.parent.name) as context,
            structlog.testing.capture_logs() as logs,
        ):
            report = archive(context, log_dir, "codecs-java")
        segments = archived_states(store)["codecs-java-0"].segments
        parts[log_dir] = [segment.part(PartName.PRODUCER_SNAPSHOT) for segment in segments]
    assert {key for outcome in report.outcomes for key in outcome.conformance} == {"corrupt"}
    assert {segment.snapshot.origin for segment in segments} == {SnapshotOrigin.REBUILT}
    assert [part and part.size_bytes for part in parts[damaged]] == [part and part.size_bytes for part in parts[whole]]
    loud = [event for event in logs if event["event"] == "producer_snapshot_mismatch"]
    assert len(loud) == len(segments)
    assert {event["log_level"] for event in loud} == {"error"}
    assert "checksum" in loud[0]["found"]
