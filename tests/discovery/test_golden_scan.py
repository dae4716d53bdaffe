from __future__ import annotations

import pytest

from sidecar.broker.files import FileBrokerFacts
from sidecar.config.topic_filter import TopicFilter
from sidecar.discovery.scan import scan_log_dirs
from tests.golden import VERSIONS, golden, manifest


@pytest.mark.parametrize("version", VERSIONS)
def test_a_real_log_dir_is_found_as_its_broker_knew_it(version: str) -> None:
    log_dir, known = golden(version) / "logs", manifest(version)
    result = scan_log_dirs([log_dir], TopicFilter())
    facts = FileBrokerFacts([log_dir], assume_leader=True)
    assert result.problems == ()
    assert (facts.cluster_id(), facts.broker_id()) == (known["cluster_id"], known["broker_id"])
    expected = {
        (topic, number) for topic, entry in known["topics"].items() for number in range(len(entry["partitions"]))
    }
    assert {(found.topic_partition.topic, found.topic_partition.partition) for found in result.partitions} == expected
    for files in result.partitions:
        topic = known["topics"][files.topic_partition.topic]
        partition = topic["partitions"][files.topic_partition.partition]
        found = facts.partition(files)
        assert files.topic_id == found.topic_id == topic["topic_id"]
        # After a clean shutdown the checkpoints are complete: everything is stable.
        assert found.stable_end_offset == partition["high_watermark"], files.topic_partition
        assert found.log_start_offset == partition["log_start_offset"], files.topic_partition
        assert (found.leads, found.reason) == (True, None)
        assert not files.unstable
        assert files.active_base_offset is not None
        ends = [segment.end_offset for segment in files.segments]
        assert ends == [
            *(segment.base_offset for segment in files.segments[1:]),
            *([files.active_base_offset] if ends else []),
        ]


@pytest.mark.parametrize("version", VERSIONS)
def test_internal_topics_are_there_when_asked_for(version: str) -> None:
    result = scan_log_dirs([golden(version) / "logs"], TopicFilter(include=("__.*",), internal=True))
    assert [str(found.topic_partition) for found in result.partitions] == ["__transaction_state-0"]
