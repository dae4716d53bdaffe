"""What an operator says of topics may change while facts are in use: the next question is answered by what holds then."""

from __future__ import annotations

from pathlib import Path

from sidecar.broker.connection import BrokerConnection
from sidecar.broker.files import FileBrokerFacts
from sidecar.broker.topic_configs import TopicConfigs
from sidecar.config.broker_connection import BrokerConnectionSettings
from sidecar.config.topic_policy import TopicPolicySettings
from tests.fakes.manual_clock import ManualClock


def test_facts_from_files_and_from_a_broker_read_the_overrides_anew(tmp_path: Path) -> None:
    overrides: list[TopicPolicySettings] = []
    files = FileBrokerFacts([tmp_path], policies=overrides)
    configs = TopicConfigs(BrokerConnection(BrokerConnectionSettings()), overrides, 300, ManualClock())
    asked = (files.policy, configs.policy)
    assert [policy("orders").retention_ms for policy in asked] == [None, None]
    overrides[:] = [TopicPolicySettings(pattern="ord.*", retention_ms=60_000)]
    assert [policy("orders").retention_ms for policy in asked] == [60_000, 60_000]
    assert [policy("users").retention_ms for policy in asked] == [None, None]
    overrides[:] = []
    assert [policy("orders").retention_ms for policy in asked] == [None, None]
