"""By which strategy a partition was compacted last, as its commits say."""

from __future__ import annotations

from dataclasses import replace

from sidecar.archive.actions import Clean
from sidecar.archive.state import empty_state, newest_strategy
from sidecar.compaction_strategy import StrategyInUse
from tests.archive.builders import LINEAGE, a_segment

RAW = a_segment(0, 10)
BY_V = replace(a_segment(10, 20), generation=1, strategy="header", strategy_parameters={"now_ms": "1", "header": "v"})
BY_TIME = replace(a_segment(20, 30), generation=1, strategy="timestamp", strategy_parameters={"now_ms": "2"})


def test_the_clean_range_tells_and_where_there_is_none_the_newest_compacted_segment() -> None:
    state = replace(empty_state(LINEAGE), segments=(RAW,))
    assert newest_strategy(state) is None
    copies = replace(state, segments=(RAW, BY_V, BY_TIME, a_segment(30, 40)))
    assert newest_strategy(copies) == StrategyInUse("timestamp")
    assert newest_strategy(replace(copies, segments=(RAW, BY_V))) == StrategyInUse("header", "v")
    clean = Clean(0, 20, "header", {"now_ms": "3", "header": "w"})
    assert newest_strategy(replace(copies, clean=clean)) == StrategyInUse("header", "w")
