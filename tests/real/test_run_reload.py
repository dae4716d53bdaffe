"""A `run` process whose settings are a ConfigMap: exchanged under it, spoilt, and asked for by SIGHUP."""

from __future__ import annotations

import json
import signal
from itertools import count
from pathlib import Path
from typing import Any

from tests.cli.running import in_this_process
from tests.golden import golden_copy
from tests.real.daemon import Daemon, eventually


class ConfigMap:
    """A volume as the kubelet makes it: the file is a link into `..data`, which is a link to the version that holds."""

    def __init__(self, volume: Path, text: str) -> None:
        volume.mkdir()
        self._volume = volume
        self._versions = count(1)
        self.file = volume / "settings.yaml"
        self.file.symlink_to("..data/settings.yaml")
        self.exchange(text)

    def exchange(self, text: str) -> None:
        version = self._volume / f"..version-{next(self._versions)}"
        version.mkdir()
        (version / "settings.yaml").write_text(text)
        link = self._volume / "..data_tmp"
        link.symlink_to(version.name)
        link.rename(self._volume / "..data")


def shown(daemon: Daemon) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(daemon.get("/status")[1])["config"]
    return found


def test_a_configmap_is_taken_over_refused_and_corrected_without_a_restart(tmp_path: Path) -> None:
    log_dir = golden_copy("4.3.0", tmp_path / "logs") / "logs"
    configured = ConfigMap(tmp_path / "etc", "topics: {include: [orders]}\nlog: {level: warning}\n")
    settings = {"store.url": (tmp_path / "archive").as_uri(), "broker.log_dirs": str(log_dir)}
    with Daemon(tmp_path, settings, variables={"TIERED_SIDECAR_CONFIG": str(configured.file)}) as daemon:
        eventually(daemon.is_settled)
        assert set(daemon.partitions()) == {"orders-0", "orders-1"}
        assert shown(daemon)["generation"] == 1

        configured.exchange("topics: {include: [orders, append-time]}\n")
        eventually(lambda: (daemon.archived_end("append-time-0") or 0) > 0)
        eventually(lambda: shown(daemon)["generation"] == 2)
        assert daemon.metric("config_reloads_total", result="applied") == 1

        configured.exchange("topics: {include: [single]}\nhttp: {max_connections: 3}\n")
        eventually(lambda: daemon.metric("config_stale") == 1)
        refused = shown(daemon)
        assert (refused["generation"], refused["refused"]["settings"]) == (2, ["http.max_connections"])
        assert "append-time-0" in daemon.partitions()

        configured.exchange("topics: {include: [\n")
        eventually(lambda: daemon.metric("config_reloads_total", result="invalid") == 1)
        assert "settings.yaml, line" in shown(daemon)["refused"]["reason"]

        configured.exchange("topics: {include: [orders, append-time]}\n")
        eventually(lambda: daemon.metric("config_stale") == 0)
        daemon.process.send_signal(signal.SIGHUP)
        eventually(lambda: daemon.metric("config_reloads_total", result="unchanged") == 2)

        # What the command shows is what runs.
        variables = {name: value for name, value in daemon.environment.items() if name.startswith("TIERED_")}
        (by_hand,) = in_this_process("config", "show", "--json", variables=variables).lines()
        assert by_hand["fingerprint"] == shown(daemon)["fingerprint"]

        assert daemon.process.stop() == 0
        events = {event["event"]: event for event in daemon.events()}
    # The level was of the first settings, in which nothing below a warning was written.
    assert events["config_reloaded"]["settings"] == ["topics.include", "log.level"]
    assert {"config_reload_refused", "config_unchanged", "stopped"} < set(events)
    assert "http_listening" not in events
