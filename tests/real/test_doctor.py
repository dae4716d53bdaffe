"""`doctor` against a real S3 server, a network that fails, and a real broker that goes away."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from sidecar.config import Settings
from sidecar.doctor import store as store_area
from sidecar.doctor.doctor import doctor
from sidecar.doctor.findings import Area, Report, Verdict
from tests.cli.running import command, environment
from tests.doctor.examined import found_in, troubles
from tests.golden import golden
from tests.servers.kafka import KafkaBroker
from tests.servers.toxiproxy import Toxiproxy
from tests.servers.versitygw import VersityGateway
from tests.storage.s3_servers import new_bucket, versitygw_server

pytestmark = pytest.mark.real


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """No store is slow because this machine is busy."""
    monkeypatch.setattr(store_area, "_SLOW_MS", 300_000)


def settings_for(tmp_path: Path, endpoint: str, bucket: str = "archive", **broker: Any) -> Settings:
    keys = {"access_key_id": "test-access-key", "secret_access_key": "test-secret-key"}
    s3 = {"endpoint_url": endpoint, "region": "us-east-1", "addressing_style": "path", **keys}
    return Settings.model_validate(
        {
            "store": {"url": f"s3://{bucket}/doctor", "s3": s3},
            "broker": broker or {"log_dirs": [golden("4.3.0") / "logs"], "assume_leader": True},
            "run": {"state_dir": tmp_path / "state"},
        }
    )


def of_the_store(settings: Settings, timeout_s: float = 30.0) -> Report:
    return doctor(settings, areas=[Area.STORE], timeout_s=timeout_s)


def test_a_sound_s3_server_is_green_and_nothing_is_left_there(tmp_path: Path, gateway: VersityGateway) -> None:
    report = of_the_store(settings_for(tmp_path, gateway.endpoint))
    assert troubles(report) == {}
    assert found_in(report, "create-only put under a race").outcome.verdict is Verdict.OK
    assert found_in(report, "abort of a multipart upload").outcome.verdict is Verdict.OK
    client = gateway.client()
    assert "Contents" not in client.list_objects_v2(Bucket=gateway.bucket)
    assert not client.list_multipart_uploads(Bucket=gateway.bucket).get("Uploads")
    client.close()


def test_a_server_that_looks_before_it_leaps_is_refused(tmp_path: Path) -> None:
    with versitygw_server(tmp_path, racy=True) as endpoint:
        report = of_the_store(settings_for(tmp_path, endpoint, new_bucket(endpoint)))
    found = found_in(report, "create-only put under a race")
    assert found.outcome.verdict is Verdict.PROBLEM
    assert "puts of the same key at once" in found.outcome.detail
    assert report.exit_code == 6


def test_wrong_keys_and_a_bucket_that_is_not_there(tmp_path: Path, gateway: VersityGateway) -> None:
    settings = settings_for(tmp_path, gateway.endpoint, "elsewhere")
    assert "NoSuchBucket" in troubles(of_the_store(settings))["reachable"]
    tree = settings.model_dump()
    tree["store"]["s3"]["secret_access_key"] = "not-the-right-one"
    tree["store"]["url"] = "s3://archive/doctor"
    report = of_the_store(Settings.model_validate(tree))
    assert list(troubles(report)) == ["reachable"]
    assert "check the credentials" in troubles(report)["reachable"]
    assert "not-the-right-one" not in str(report.as_json())


def test_a_slow_network_is_a_warning_and_a_cut_one_a_problem_in_time(
    tmp_path: Path, gateway: VersityGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_area, "_SLOW_MS", 100)
    with Toxiproxy(tmp_path) as proxies:
        proxy = proxies.proxy("s3", gateway.port)
        settings = settings_for(tmp_path, proxy.endpoint)
        slow = proxy.add_toxic("latency", latency=120)
        report = of_the_store(settings, timeout_s=60)
        assert "latency" in troubles(report)
        assert found_in(report, "read").outcome.verdict is Verdict.OK
        proxy.remove_toxic(slow)
        hangs = proxy.add_toxic("timeout", timeout=0)
        report = of_the_store(settings, timeout_s=4)
        assert list(troubles(report)) == ["reachable"]
        proxy.remove_toxic(hangs)
        proxy.set_enabled(False)
        report = of_the_store(settings, timeout_s=4)
        assert (list(troubles(report)), report.exit_code) == (["reachable"], 6)


def test_a_doctor_that_was_killed_is_cleared_up_after(tmp_path: Path, gateway: VersityGateway) -> None:
    settings = settings_for(tmp_path, gateway.endpoint)
    variables = {
        "TIERED_SIDECAR__STORE__S3__ENDPOINT_URL": gateway.endpoint,
        "TIERED_SIDECAR__STORE__S3__ADDRESSING_STYLE": "path",
        "AWS_ACCESS_KEY_ID": gateway.access_key,
        "AWS_SECRET_ACCESS_KEY": gateway.secret_key,
    }
    client = gateway.client()

    def objects() -> list[str]:
        return [entry["Key"] for entry in client.list_objects_v2(Bucket=gateway.bucket).get("Contents", [])]

    def killed_amid() -> list[str]:
        """What a killed one leaves; nothing where we came too late, and it had cleared up and ended."""
        process = subprocess.Popen(
            command("doctor", "--area", "store", "--archive", settings.store.url),
            env=environment(**variables),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while process.poll() is None and not objects():
            time.sleep(0.002)  # noqa: TID251 - a core that only asks is missing where the answer is made
        process.send_signal(signal.SIGKILL)
        process.wait()
        return objects()

    names = next(filter(None, (killed_amid() for _ in range(20))))
    an_hour_ago_s = (tmp_path.stat().st_mtime_ns / 1e9) - 3600
    for file in (gateway.objects / gateway.bucket).rglob("*"):
        os.utime(file, (an_hour_ago_s, an_hour_ago_s))
    report = of_the_store(settings)
    assert f"earlier probes removed: {len(names)}" in found_in(report, "leftovers of probes").outcome.detail
    assert "Contents" not in client.list_objects_v2(Bucket=gateway.bucket)
    client.close()


def test_a_live_broker_is_green_and_one_that_is_away_is_reported(tmp_path: Path, gateway: VersityGateway) -> None:
    with KafkaBroker("4.3.0", tmp_path) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        producer.produce("orders", b"one")
        assert producer.flush(60) == 0
        connection = {"bootstrap_servers": [broker.bootstrap]}
        settings = settings_for(tmp_path, gateway.endpoint, log_dirs=broker.log_dirs, connection=connection)
        report = doctor(settings)
        assert troubles(report) == {}
        assert "leader of 1 of 1 partition of" in found_in(report, "reports leaders").outcome.detail
        assert f"cluster {broker.cluster_id}" in found_in(report, "responds as the local broker").outcome.detail
        mistyped = settings.model_copy(update={"topics": settings.topics.model_copy(update={"include": ["order"]})})
        slip = doctor(mistyped, areas=[Area.LOG_DIRS])
        assert "of the cluster's topics no topic matches; there are: orders" in troubles(slip)["partitions"]
        assert slip.exit_code == 2
        # A volume of the broker's image lies over its data, and the one that is mounted here is empty; or it is another one.
        mounted = tmp_path / "mounted"
        mounted.mkdir()
        empty = settings_for(tmp_path, gateway.endpoint, log_dirs=[mounted], connection=connection)
        finding = f"1 of 1 replica that the broker reports in {broker.log_dirs[0]} cannot be found in {mounted}"
        assert finding in troubles(doctor(empty, areas=[Area.BROKER]))["responds as the local broker"]
        shutil.copy(broker.log_dirs[0] / "meta.properties", mounted)
        assert finding in troubles(doctor(empty, areas=[Area.BROKER]))["has no replica that is not seen here"]
        other = settings_for(
            tmp_path, gateway.endpoint, log_dirs=[golden("4.3.0") / "logs"], connection=connection, broker_id=1
        )
        wrong = doctor(other, areas=[Area.BROKER])
        assert "belong to cluster" in troubles(wrong)["responds as the local broker"]
        broker.stop()
        away = doctor(settings, areas=[Area.BROKER, Area.LOG_DIRS])
        assert (list(troubles(away)), away.exit_code) == (["takes connections"], 1)
        assert "start the broker" in found_in(away, "takes connections").outcome.advice
