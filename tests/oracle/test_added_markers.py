"""An archived log with an abort marker of ours, read by Kafka's own classes: they load it, and see the same aborted transaction."""

from __future__ import annotations

from pathlib import Path

import pytest

from sidecar.archive.keys import below
from sidecar.logformat.names import Suffix, file_name
from sidecar.model import PartName
from sidecar.segment.archived_objects import read_parts
from tests.oracle import Oracle
from tests.runner.rig import archived_states
from tests.segment.test_markers_that_the_cleaner_took import ABORTED, NEXT, PRODUCER, archived_then, data, marker


@pytest.mark.real
@pytest.mark.parametrize("is_replaced", [False, True], ids=["at a free offset", "in the place of a commit marker"])
def test_kafka_loads_a_log_with_an_added_marker(oracle: Oracle, tmp_path: Path, is_replaced: bool) -> None:
    left, end_offset = (marker(3, commit=True, epoch=1), 7) if is_replaced else (data(3, b"y"), 6)
    store, events, errors = archived_then(
        tmp_path,
        {0: ABORTED, 2: [marker(2, commit=False), data(3, b"y")]},
        {
            0: [data(1, b"x")],
            2: [left],
            4: [data(5, b"k", PRODUCER, 0, epoch=2), marker(6, commit=True, epoch=3)] if is_replaced else NEXT,
            end_offset: [],
        },
        end_offset,
    )
    assert (errors, "abort_marker_added" in events) == ([], True)
    state = archived_states(store)["orders-0"]
    directory = tmp_path / "archived" / "orders-0"
    directory.mkdir(parents=True)
    for segment in state.segments:
        content = store.read(below(state.lineage.root, segment.log_key))
        (directory / file_name(segment.base_offset, Suffix.LOG)).write_bytes(content)
    replay = oracle.snapshots(directory, directory.parent)
    assert replay.stopped is None
    # The aborted transaction is open at 2 only: the marker that was added is in the next segment.
    assert [(at.offset, at.first_unstable_offset) for at in replay.boundaries] == [
        (2, 0),
        (4, None),
        (end_offset, None),
    ]
    records = [record for path in sorted(directory.glob("*.log")) for record in oracle.dump_records(path)]
    assert [record.offset for record in records] == [
        *([0, 1, 3] if is_replaced else [0, 1, 2, 3]),
        end_offset - 2,
        end_offset - 1,
    ]
    assert [segment.truncated_bytes for segment in oracle.recover(directory)] == [0, 0, 0]
    for segment in state.segments:
        parts = read_parts(store, state.lineage.root, segment)
        for part, suffix in (
            (PartName.OFFSET_INDEX, Suffix.OFFSET_INDEX),
            (PartName.TIME_INDEX, Suffix.TIME_INDEX),
            (PartName.TRANSACTION_INDEX, Suffix.TRANSACTION_INDEX),
        ):
            file = directory / file_name(segment.base_offset, suffix)
            assert (file.read_bytes() if file.exists() else b"") == parts.get(part, b""), (segment.base_offset, suffix)
