"""Imported by the process from which Spark forks its workers: each kernel is loaded once, not once per worker."""

from producer_state.digest import DigestBuilder
from sidecar.logformat.batches import scan_bytes
from sidecar.logformat.bodies.building import build_batch
from sidecar.logformat.bodies.record import Record


def warm_up() -> None:
    batch = build_batch([Record(0, 0, None, b"")], producer_id=0, producer_epoch=0, base_sequence=0)
    builder = DigestBuilder(0)
    for columns in scan_bytes(batch, base_offset=0):
        builder.add(columns.facts())
    builder.finish(1)


warm_up()
