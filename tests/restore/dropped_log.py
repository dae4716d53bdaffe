"""A log that was restored without producers, and that a broker has written on since."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from producer_state.replay import replay
from producer_state.table import ProducerTable
from sidecar.logformat.batches import scan_file
from sidecar.restore.request import ProducerStateMode
from sidecar.segment.dropped_producers import dropped_producers
from tests.fakes.memory_store import MemoryStore
from tests.golden import golden
from tests.restore.archives import archived, own_log_dir, restored
from tests.runner.rig import archived_states


def log_written_on(directory: Path, restored_from: MemoryStore | None = None) -> Path:
    """The directory of `orders-0`: two restored segments, whose snapshots are empty, and two of new producers.

    Args:
        restored_from: an archive that has the two at least. Default: one that has all four.

    The broker loads its empty snapshot at the restored end, and its snapshots above tell only of what came above.
    """
    source, log_dir = archived(), own_log_dir(directory)
    spans = [(found.base_offset, found.end_offset) for found in archived_states(source)["orders-0"].segments]
    end_offset = spans[1][1]
    restored(
        restored_from or source, log_dir, "orders", offset_range=(0, end_offset), producer_state=ProducerStateMode.DROP
    )
    found, original = log_dir / "orders-0", golden("4.3.0") / "logs" / "orders-0"
    assert dropped_producers(found).below_offset == end_offset
    table = ProducerTable.blank(end_offset)
    for base_offset, next_offset in spans[2:4]:
        for path in original.glob(f"{base_offset:020d}.*"):
            if path.suffix != ".snapshot":
                shutil.copy(path, found)
        for columns in scan_file(found / f"{base_offset:020d}.log", base_offset=base_offset):
            table, _ = replay(table, columns.facts())
        table = replace(table, end_offset=next_offset)
        (found / f"{next_offset:020d}.snapshot").write_bytes(table.to_snapshot())
    (found / f"{spans[3][1]:020d}.log").touch()
    shutil.copy(original / "leader-epoch-checkpoint", found)
    for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
        (log_dir / name).write_text(f"0\n1\norders 0 {spans[3][1]}\n")
    return found
