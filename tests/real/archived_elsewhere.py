"""What was restored into another cluster, archived there again."""

from __future__ import annotations

from pathlib import Path

from producer_state.snapshot import read_snapshot
from sidecar.archive.keys import below
from sidecar.model import PartName
from sidecar.segment.dropped_producers import dropped_producers
from tests.real.product import run_program, s3_settings, store_of
from tests.runner.rig import archived_states
from tests.servers.versitygw import VersityGateway


def assert_goes_on_without_producers(gateway: VersityGateway, log_dir: Path, scratch: Path) -> None:
    """An archive of the new cluster's own knows nobody of the old one, as its broker does, and finds nothing wrong with that."""
    settings = {**s3_settings(gateway), "store.url": f"s3://{gateway.bucket}/{scratch.name}-anew"}
    arguments = ["backfill", "--log-dir", str(log_dir), "--assume-leader", "--topic", "orders"]
    own = {"run.state_dir": str(scratch / "anew"), "broker.settle_ms": "0"}
    done = run_program({**settings, **own}, *arguments)
    assert done.returncode == 0, done.stderr
    assert "producer_snapshot" not in done.stderr
    with store_of(settings) as store:
        state = archived_states(store)["orders-0"]
        known = {
            segment.end_offset: read_snapshot(
                store.read(below(state.lineage.root, segment.indexes_key), part.position, part.size_bytes)
            )
            for segment in state.segments
            if (part := segment.part(PartName.PRODUCER_SNAPSHOT))
        }
    restored_end = dropped_producers(log_dir / "orders-0").below_offset
    assert restored_end in known
    assert {(end > restored_end, len(found)) for end, found in known.items()} == {(False, 0), (True, 1)}
