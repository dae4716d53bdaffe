from __future__ import annotations

import json
import struct

import pytest

from sidecar.errors import CorruptFile
from sidecar.logformat.dump import dump_index
from sidecar.logformat.names import Suffix
from tests.logformat.dumped import dump_file


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


def test_damage_is_reported_before_the_first_entry() -> None:
    with pytest.raises(CorruptFile) as caught:
        dump_index(Suffix.OFFSET_INDEX, b"1234567", 100, "here.index")
    assert caught.value.file == "here.index"


def test_a_log_is_no_index() -> None:
    with pytest.raises(ValueError, match="not an index"):
        dump_index(Suffix.LOG, b"", 0)
