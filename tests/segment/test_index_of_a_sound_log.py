"""A wrong index beside a log whose batches all have their checksums: the log is the truth, so it is archived, with a rebuilt index.

No broker looks at the offset and time index of a segment below its recovery point; where it does look, it rebuilds them.
Source: LogSegment.sanityCheck, AbstractIndex.createAndAssignMmap, LogLoader.recoverSegment.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.memory_store import MemoryStore
from tests.golden import golden_copy
from tests.runner.rig import archive, archived_states, ranges, rolled_ranges, tools_for


@pytest.mark.parametrize("damage", ["half an entry behind the last one", "a bit of an entry"])
@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_a_wrong_index_keeps_no_sound_log_from_the_archive(suffix: str, damage: str, tmp_path: Path) -> None:
    copy, store = golden_copy("4.3.0", tmp_path / "copy") / "logs", MemoryStore()
    index = next(path for path in sorted((copy / "orders-0").glob(f"*.{suffix}")) if path.stat().st_size >= 16)
    content = bytearray(index.read_bytes())
    if damage == "a bit of an entry":
        content[3] ^= 1
    else:
        content += b"\1\2\3"
    index.write_bytes(content)
    with tools_for(copy, store, tmp_path / "state") as context:
        report = archive(context, copy, "orders")
    assert report.errors == []
    assert ranges(archived_states(store)["orders-0"]) == rolled_ranges(copy, "orders-0")


def test_an_impossible_transaction_index_stops_the_partition(tmp_path: Path) -> None:
    copy, store = golden_copy("4.3.0", tmp_path / "copy") / "logs", MemoryStore()
    index = next(path for path in sorted(copy.glob("transactions-*/*.txnindex")) if path.stat().st_size)
    content = bytearray(index.read_bytes())
    content[24] ^= 1  # The last offset of the first aborted transaction is 256 higher.
    index.write_bytes(content)
    with tools_for(copy, store, tmp_path / "state") as context:
        (error,) = archive(context, copy, "transactions").errors
    assert str(error).startswith(f"{index}, at byte 0: transaction index:")
    assert "the index disagrees with its log" in str(error)
