from __future__ import annotations

import json
import struct

import pytest

from sidecar.errors import CorruptFile
from sidecar.logformat.index_dump import dump_file, dump_index
from sidecar.logformat.names import Suffix


def test_entries_of_every_kind_are_plain_json() -> None:
    dumped = {
        name: list(dump_file(name, data) or ())
        for name, data in {
            "00000000000000000100.index": struct.pack(">iiii", 2, 6000, 4, 12000) + b"\0" * 800,
            "00000000000000000100.timeindex": struct.pack(">qi", 50, 1) + b"\0" * 36,
            "00000000000000000100.txnindex": struct.pack(">hqqqq", 0, 4242, 100, 103, 104),
            "leader-epoch-checkpoint": b"0\n1\n3 100\n",
        }.items()
    }
    assert json.loads(json.dumps(dumped)) == {
        "00000000000000000100.index": [{"offset": 102, "position": 6000}, {"offset": 104, "position": 12000}],
        "00000000000000000100.timeindex": [{"timestamp_ms": 50, "offset": 101}],
        "00000000000000000100.txnindex": [
            {"producer_id": 4242, "first_offset": 100, "last_offset": 103, "last_stable_offset": 104}
        ],
        "leader-epoch-checkpoint": [{"epoch": 3, "start_offset": 100}],
    }


@pytest.mark.parametrize(
    "name", ["00000000000000000100.log", "00000000000000000100.snapshot", "x.index", "partition.metadata"]
)
def test_other_files_are_somebody_elses(name: str) -> None:
    assert dump_file(name, b"") is None


def test_damage_is_reported_before_the_first_entry() -> None:
    with pytest.raises(CorruptFile) as caught:
        dump_file("00000000000000000100.index", b"1234567", "here.index")
    assert caught.value.file == "here.index"


def test_a_log_is_no_index() -> None:
    with pytest.raises(ValueError, match="no index"):
        dump_index(Suffix.LOG, b"", 0)
