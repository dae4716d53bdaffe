"""`run --retry-start` as a process: a ConfigMap and a Secret that come late, and signals while it waits."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.cli.running import in_this_process
from tests.golden import golden_copy
from tests.real.daemon import Daemon, eventually
from tests.real.test_run_reload import ConfigMap
from tests.servers.process import ServerProcess
from tests.servers.versitygw import VersityGateway

pytestmark = pytest.mark.real


def retried(tmp_path: Path, **variables: str) -> Daemon:
    """Over a settings file that is not there yet."""
    (tmp_path / "etc").mkdir()
    variables |= {"TIERED_SIDECAR_CONFIG": str(tmp_path / "etc" / "volume" / "settings.yaml")}
    daemon = Daemon(tmp_path, {}, variables=variables)
    command = [*daemon.process.command, "--retry-start"]
    daemon.process = ServerProcess("tiered-sidecar", command, tmp_path / "run.log", daemon.environment)
    return daemon


def readiness(daemon: Daemon) -> str:
    """The text of `/readyz`, "" between the server of a wait and that of a start."""
    try:
        return daemon.get("/readyz")[1]
    except OSError:
        return ""


def test_settings_and_keys_that_come_late_start_it_and_it_drains_as_always(
    tmp_path: Path, gateway: VersityGateway
) -> None:
    log_dir = golden_copy("4.3.0", tmp_path / "logs") / "logs"
    contents = {"ACCESS_KEY_ID": gateway.access_key, "SECRET_ACCESS_KEY": gateway.secret_key}
    keys = {name: tmp_path / name for name in contents}
    variables = {f"TIERED_SIDECAR__STORE__S3__{name}_FILE": str(key) for name, key in keys.items()}
    with retried(tmp_path, **variables) as daemon:
        eventually(lambda: "start: " in readiness(daemon))
        s3 = {"endpoint_url": gateway.endpoint, "region": gateway.region, "addressing_style": "path"}
        store = json.dumps({"url": f"s3://{gateway.bucket}/archive", "s3": s3})
        text = f"store: {store}\nbroker: {{log_dirs: [{log_dir}]}}\ntopics: {{include: [orders]}}\n"
        ConfigMap(tmp_path / "etc" / "volume", text)
        eventually(lambda: str(keys["ACCESS_KEY_ID"]) in readiness(daemon))
        # The wait has just begun, and lasts for seconds by now.
        assert daemon.get("/healthz") == (200, "ok\n")
        assert daemon.metric("not_ready", condition="start") == 1
        for name, key in keys.items():
            key.write_text(contents[name])
        daemon.process.send_signal(signal.SIGHUP)
        eventually(lambda: readiness(daemon) == "ok\n" and daemon.is_settled())
        assert set(daemon.partitions()) == {"orders-0", "orders-1"}
        assert daemon.metric("not_ready", condition="start") == 0
        assert daemon.process.stop() == 0
        events = [event["event"] for event in daemon.events()]
    assert "start_failed" in events
    assert events[-2:] == ["draining", "stopped"]


def test_sigterm_ends_the_wait_with_0(tmp_path: Path) -> None:
    with retried(tmp_path) as daemon:
        eventually(lambda: "start: cannot read settings file" in readiness(daemon))
        assert daemon.process.stop() == 0
        assert {event["event"] for event in daemon.events()} == {"start_failed"}


def test_a_usage_error_ends_it_with_2_all_the_same() -> None:
    for wrong in (["--http-bind", "nonsense"], ["--set", "run.worker=1"], ["--no-such-option"]):
        assert in_this_process("run", "--retry-start", *wrong).code == 2
    assert in_this_process("run", "--http-bind", "127.0.0.1:0").code == 2
