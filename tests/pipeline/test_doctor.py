"""`doctor`: every trouble that an installation may have is one line with what to do, and the other lines stand."""

from __future__ import annotations

import json
import os
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sidecar.clock import ManualClock, SystemClock
from sidecar.config import Settings
from sidecar.errors import StoreDenied
from sidecar.pipeline import memory_limit
from sidecar.pipeline.doctor import machine
from sidecar.pipeline.doctor import store as store_area
from sidecar.pipeline.doctor.bucket import bucket_rules
from sidecar.pipeline.doctor.doctor import doctor
from sidecar.pipeline.doctor.examining import examine
from sidecar.pipeline.doctor.findings import Area, Check, Finding, Outcome, Report, Verdict, fine, problem
from sidecar.storage import open_store
from sidecar.store_settings import StoreSettings
from tests.cli import unprivileged
from tests.cli.running import in_this_process, tiered_sidecar
from tests.fakes.memory_store import MemoryStore
from tests.golden import golden
from tests.storage.s3_servers import ACCESS_KEY, SECRET_KEY, moto_server, new_bucket, plain_client


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Of our own, so that it may be spoilt."""
    return Path(shutil.copytree(golden("4.3.0") / "logs", tmp_path / "logs"))


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """What every settings' URL leads to."""
    found = MemoryStore(SystemClock())
    monkeypatch.setattr(store_area, "open_store", lambda *_arguments: found)
    return found


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    with moto_server() as endpoint_url:
        yield endpoint_url


def settings_for(log_dir: Path, **sections: Any) -> Settings:
    tmp_path = log_dir.parent
    tree: dict[str, Any] = {
        "store": {"url": str(tmp_path / "archive")},
        "broker": {"log_dirs": [log_dir], "assume_leader": True},
        "run": {"state_dir": tmp_path / "state"},
    }
    for name, values in sections.items():
        tree[name] = {**tree.get(name, {}), **values}
    return Settings.model_validate(tree)


def on_moto(endpoint_url: str, bucket: str, **s3: Any) -> dict[str, Any]:
    own = {"endpoint_url": endpoint_url, "region": "us-east-1", "access_key_id": ACCESS_KEY}
    return {"url": f"s3://{bucket}/archive", "s3": {**own, "secret_access_key": SECRET_KEY, **s3}}


def found_in(report: Report, check: str) -> Finding:
    (finding,) = [found for found in report.findings if found.check == check]
    return finding


def troubles(report: Report) -> dict[str, str]:
    """Everything that is neither fine nor for want of something else, by check."""
    return {
        found.check: found.outcome.detail
        for found in report.findings
        if found.outcome.verdict in {Verdict.WARNING, Verdict.PROBLEM}
    }


def test_an_installation_without_fault_is_all_green(log_dir: Path) -> None:
    report = doctor(settings_for(log_dir))
    assert troubles(report) == {}
    assert report.exit_code == 0
    assert not report.has_hung
    assert list((log_dir.parent / "archive").iterdir()) == []
    assert not (log_dir.parent / "state").exists()


def test_the_command_says_the_same_in_a_table_and_in_json(log_dir: Path) -> None:
    arguments = ["doctor", "--log-dir", log_dir, "--archive", log_dir.parent / "archive", "--assume-leader"]
    arguments += ["--state-dir", log_dir.parent / "state"]
    shown = in_this_process(*arguments)
    assert (shown.code, "problems: 0, warnings: 0" in shown.err) == (0, True)
    assert "create-only put under a race" in shown.out
    (answer,) = in_this_process("--json", *arguments).lines()
    assert (answer["kind"], answer["version"], answer["exit_code"]) == ("doctor", 1, 0)
    assert {check["area"] for check in answer["checks"]} == set(Area)
    assert answer["counts"]["ok"] == sum(check["verdict"] == "ok" for check in answer["checks"])


def test_settings_that_cannot_be_read_are_a_finding_and_nothing_else_is_guessed(tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").write_text("store: {url: s3://bucket}\nrun: {scan_intervall_s: 3}\n")
    outcome = in_this_process("doctor", "--json", "--config", tmp_path / "settings.yaml")
    (answer,) = outcome.lines()
    assert (outcome.code, answer["exit_code"]) == (2, 2)
    assert "did you mean run.scan_interval_s" in answer["checks"][0]["detail"]
    assert {check["verdict"] for check in answer["checks"][1:]} == {"not_checked"}


def test_an_area_can_be_asked_for_alone(log_dir: Path) -> None:
    report = doctor(settings_for(log_dir), areas=[Area.MACHINE])
    assert {found.area for found in report.findings} == {Area.MACHINE}


def _gone(log_dir: Path) -> None:
    shutil.rmtree(log_dir)


def _of_something_else(log_dir: Path) -> None:
    _gone(log_dir)
    (log_dir / "photos").mkdir(parents=True)


def _empty_log_dir(log_dir: Path, name: str) -> Path:
    """A second one of the same broker."""
    (log_dir.parent / name).mkdir()
    return Path(shutil.copy(log_dir / "meta.properties", log_dir.parent / name)).parent


def _of_two_clusters(log_dir: Path) -> None:
    second = _empty_log_dir(log_dir, "second")
    text = (second / "meta.properties").read_text()
    (second / "meta.properties").write_text(text.replace("cluster.id=", "cluster.id=x"))


@pytest.mark.parametrize(
    ("spoil", "check", "words"),
    [
        (_gone, "logs", "No such file"),
        (_of_something_else, "logs", "not a log dir of Kafka's"),
        (_of_two_clusters, "ids in meta.properties", "different brokers or clusters"),
    ],
)
def test_log_dirs_that_are_none_are_told_and_the_store_is_looked_at_all_the_same(
    spoil: Callable[[Path], None], check: str, words: str, log_dir: Path
) -> None:
    spoil(log_dir)
    second = log_dir.parent / "second"
    log_dirs = [log_dir, second] if second.exists() else [log_dir]
    report = doctor(settings_for(log_dir, broker={"log_dirs": log_dirs}))
    (name, detail) = next((name, text) for name, text in troubles(report).items() if Path(name).name == check)
    assert words in detail
    assert found_in(report, name).outcome.verdict is Verdict.PROBLEM
    assert report.exit_code == 2
    assert found_in(report, "write").outcome.verdict is Verdict.OK


def test_what_is_worth_knowing_of_log_dirs_is_a_warning(log_dir: Path) -> None:
    for snapshot in sorted(log_dir.glob("plain-0/*.snapshot")) or sorted(log_dir.glob("*/*.snapshot")):
        snapshot.unlink()
    (log_dir / "somebody-s").mkdir()
    other = _empty_log_dir(log_dir, "other")
    future_s = SystemClock().now_ms() / 1000 + 3600
    os.utime(max(log_dir.glob("append-time-0/*.log")), (future_s, future_s))
    report = doctor(settings_for(log_dir, broker={"log_dirs": [log_dir, other]}), areas=[Area.LOG_DIRS])
    found = troubles(report)
    assert set(found) == {str(log_dir), "disks", "producer snapshots", "times of files"}
    assert "somebody-s" in found[str(log_dir)]
    assert "lie on one disk" in found["disks"]
    assert report.exit_code == 0


def test_files_that_may_not_be_read_are_told_with_what_to_do(log_dir: Path) -> None:
    arguments = ["doctor", "--json", "--area", "log_dirs", "--log-dir", str(log_dir)]
    arguments += ["--archive", str(log_dir.parent / "archive")]
    segment = min(log_dir.glob("append-time-0/*.log"))
    segment.chmod(0)
    active = max(log_dir.glob("append-time-0/*.log"))
    active.chmod(0)
    (answer,) = unprivileged.tiered_sidecar(*arguments).lines()
    (denied,) = [check for check in answer["checks"] if check["verdict"] == "problem"]
    assert (denied["check"], answer["exit_code"]) == ("files can be read", 3)
    assert "append-time-0" in denied["detail"]
    assert "broker's user" in denied["advice"]
    log_dir.chmod(0)
    try:
        (answer,) = unprivileged.tiered_sidecar(*arguments).lines()
    finally:
        log_dir.chmod(0o755)
    assert [check["verdict"] for check in answer["checks"]] == ["problem", *["not_checked"] * 7]


def test_one_partition_that_cannot_be_looked_at_hides_nothing_of_the_others(log_dir: Path) -> None:
    (log_dir / "odd-0").mkdir()
    os.mkfifo(log_dir / "odd-0" / "00000000000000000000.log")
    for snapshot in log_dir.glob("*/*.snapshot"):
        snapshot.unlink()
    report = doctor(settings_for(log_dir), areas=[Area.LOG_DIRS])
    assert set(troubles(report)) == {"partitions", "producer snapshots"}
    assert "odd-0" in troubles(report)["partitions"]
    assert found_in(report, "files can be read").outcome.verdict is Verdict.OK


def test_a_place_that_cannot_be_written_to_says_what_to_do(log_dir: Path) -> None:
    report = doctor(settings_for(log_dir, store={"url": "file:///proc/nowhere"}), areas=[Area.STORE])
    assert "the place that store.url names" in found_in(report, "write").outcome.advice


def test_settings_that_are_valid_and_dangerous_are_warnings(log_dir: Path) -> None:
    s3 = {"endpoint_url": "http://s3.example:9000", "checksum": "none", "storage_class": "GLACIER"}
    sections: dict[str, Any] = {
        "store": {"url": "s3://bucket/archive", "single_writer": True, "s3": s3},
        "gc": {"grace_period_ms": 1000},
        "run": {"record_lost": True},
    }
    report = doctor(settings_for(log_dir, **sections), areas=[Area.SETTINGS])
    assert set(troubles(report)) == {
        "store.single_writer",
        "store.s3.endpoint_url",
        "store.s3.checksum",
        "store.s3.storage_class",
        "gc.grace_period_ms",
        "run.record_lost",
    }
    nobody = doctor(settings_for(log_dir, broker={"assume_leader": False}), areas=[Area.SETTINGS])
    assert (list(troubles(nobody)), nobody.exit_code) == (["leadership"], 2)


def test_wrong_keys_are_a_problem_of_the_store_alone_and_are_not_shown(log_dir: Path, memory: MemoryStore) -> None:
    memory.before = _refuse("the key hunter2-hunter2 is wrong")
    report = doctor(settings_for(log_dir), cleaned=lambda text: text.replace("hunter2-hunter2", "***"))
    assert list(troubles(report)) == ["reachable"]
    assert "hunter2" not in json.dumps(report.as_json())
    assert report.exit_code == 6
    assert found_in(report, "write").outcome.detail == "it needs 'reachable'"


def _refuse(words: str, operation: str = "") -> Callable[[str, str], None]:
    def refuse(asked: str, _key: str) -> None:
        if not operation or asked == operation:
            raise StoreDenied(words)

    return refuse


def test_without_the_right_to_delete_it_works_and_says_what_is_left(log_dir: Path, memory: MemoryStore) -> None:
    memory.before = _refuse("s3:DeleteObject", "delete")
    report = doctor(settings_for(log_dir), areas=[Area.STORE])
    assert set(troubles(report)) == {"delete", "cleared up"}
    assert report.exit_code == 0


def test_a_store_that_lets_two_writers_win_is_a_problem(log_dir: Path, memory: MemoryStore) -> None:
    memory.ignore_if_none_match = True
    report = doctor(settings_for(log_dir), areas=[Area.STORE])
    verdicts = {name: found_in(report, name).outcome.verdict for name in troubles(report)}
    assert verdicts["create-only put"] is Verdict.PROBLEM
    assert found_in(report, "multipart upload with checksum").outcome.verdict is Verdict.OK
    assert report.exit_code == 6
    alone = doctor(settings_for(log_dir, store={"single_writer": True}), areas=[Area.STORE])
    assert found_in(alone, "create-only put").outcome.verdict is Verdict.WARNING


class _Shifted(SystemClock):
    """A machine whose wall clock is wrong."""

    def __init__(self, ahead_s: int) -> None:
        self._ahead_ms = ahead_s * 1000

    def now_ms(self) -> int:
        return super().now_ms() + self._ahead_ms


@pytest.mark.parametrize(
    ("ahead_s", "verdict"), [(-300, Verdict.WARNING), (300, Verdict.WARNING), (-1800, Verdict.PROBLEM), (0, Verdict.OK)]
)
def test_a_wrong_clock_is_told(ahead_s: int, verdict: Verdict, log_dir: Path) -> None:
    report = doctor(settings_for(log_dir), areas=[Area.STORE], clock=_Shifted(ahead_s))
    assert found_in(report, "clock").outcome.verdict is verdict


def test_what_a_killed_probe_left_is_removed_by_the_next_but_not_what_another_is_at(log_dir: Path) -> None:
    folder = log_dir.parent / "archive" / "_probe"
    for name, age_s in (("killed", 3600), ("running", 1)):
        (folder / name).mkdir(parents=True)
        (folder / name / "small").write_bytes(b"probe")
        then_s = SystemClock().now_ms() / 1000 - age_s
        os.utime(folder / name / "small", (then_s, then_s))
    report = doctor(settings_for(log_dir), areas=[Area.STORE])
    assert "1 objects" in found_in(report, "leftovers of probes").outcome.detail
    assert [path.name for path in folder.rglob("*") if path.is_file()] == ["small"]
    assert (folder / "running" / "small").exists()


def test_a_check_that_hangs_costs_its_time_and_no_more(log_dir: Path, memory: MemoryStore) -> None:
    released = threading.Event()
    memory.before = lambda operation, _key: operation == "put_if_absent" and released.wait(60) and None
    try:
        report = doctor(settings_for(log_dir), timeout_s=1.0)
    finally:
        released.set()
    assert report.has_hung
    assert "no answer within 1 s" in found_in(report, "write").outcome.detail
    assert found_in(report, "read").outcome.detail == "it needs 'write'"
    assert found_in(report, "partitions").outcome.verdict is Verdict.OK


def test_a_process_whose_check_hangs_ends_with_its_report(log_dir: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = f"127.0.0.1:{silent.getsockname()[1]}"
        arguments = ["--log-dir", log_dir, "--archive", log_dir.parent / "archive", "--bootstrap-server", server]
        patient = ["--set", "broker.connection.request_timeout_s=300"]
        outcome = tiered_sidecar("doctor", "--json", "--area", "broker", "--timeout", "1", *arguments, *patient)
    (answer,) = outcome.lines()
    assert (outcome.code, answer["exit_code"]) == (1, 1)
    assert [check["verdict"] for check in answer["checks"]] == ["ok", "problem", *["not_checked"] * 4]
    assert "no answer within 1 s" in answer["checks"][1]["detail"]


def test_a_fault_of_our_own_is_no_finding() -> None:
    def fail() -> Any:
        raise ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError):
        examine({Area.MACHINE: [Check("odd", fail)]}, ManualClock(), timeout_s=5)


def test_problems_of_several_kinds_end_with_3() -> None:
    checks = [Check("one", lambda: problem("", exit_code=2)), Check("two", lambda: problem("", exit_code=6))]
    assert examine({Area.STORE: checks}, ManualClock(), timeout_s=5).exit_code == 3
    assert examine({Area.STORE: [Check("ok", lambda: fine(""))]}, ManualClock(), timeout_s=5).exit_code == 0


def rules_of(store: dict[str, Any]) -> Outcome:
    opened = open_store(StoreSettings.model_validate(store))
    try:
        return bucket_rules(opened)
    finally:
        opened.close()


def test_a_bucket_that_is_not_there_and_a_bucket_that_deletes_by_itself(log_dir: Path, moto: str) -> None:
    report = doctor(settings_for(log_dir, store=on_moto(moto, "no-such-bucket")), areas=[Area.STORE])
    assert "NoSuchBucket" in troubles(report)["reachable"]
    bucket = new_bucket(moto)
    store = on_moto(moto, bucket)
    report = doctor(settings_for(log_dir, store=store), areas=[Area.STORE])
    assert troubles(report) == {}
    assert "leaves no parts" in found_in(report, "abort of a multipart upload").outcome.detail
    client = plain_client(moto)
    try:
        assert "Contents" not in client.list_objects_v2(Bucket=bucket)
        assert "Uploads" not in client.list_multipart_uploads(Bucket=bucket)
        client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
        assert "keeps versions" in rules_of(store).detail
        expire = {"ID": "tidy", "Status": "Enabled", "Filter": {"Prefix": "arch"}, "Expiration": {"Days": 30}}
        client.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": [expire]})
        found = rules_of(store)
        assert (found.verdict, found.exit_code) == (Verdict.PROBLEM, 6)
        assert "'tidy' deletes objects of the archive after 30 days" in found.detail
        later = {
            "ID": "cold",
            "Status": "Enabled",
            "Filter": {},
            "Transitions": [{"Days": 1, "StorageClass": "GLACIER"}],
        }
        client.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": [later]})
        assert "'cold' moves objects to GLACIER" in rules_of(store).detail
        expire["Filter"] = {"Prefix": "logs/"}
        keep = {"ID": "old", "Status": "Enabled", "Filter": {}, "NoncurrentVersionExpiration": {"NoncurrentDays": 7}}
        client.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": [expire, keep]})
        assert rules_of(store).verdict is Verdict.OK
    finally:
        client.close()


def test_an_endpoint_nobody_answers_at_and_one_without_a_name_for_the_bucket(log_dir: Path) -> None:
    nobody = on_moto("http://127.0.0.1:1", "bucket")
    report = doctor(settings_for(log_dir, store=nobody), areas=[Area.STORE], timeout_s=10)
    assert list(troubles(report)) == ["reachable"]
    assert report.exit_code == 6
    unknown = on_moto("http://s3.invalid:9000", "bucket")
    report = doctor(settings_for(log_dir, store=unknown), areas=[Area.STORE])
    assert "no address of s3.invalid" in troubles(report)["reachable"]


def test_a_full_disk_a_place_that_is_none_and_too_few_descriptors(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_for(log_dir, compaction={"topics": ["plain"], "max_job_bytes": 1 << 60, "engine": "local"})
    report = doctor(settings, areas=[Area.MACHINE])
    assert list(troubles(report)) == ["compaction.staging_dir"]
    full = os.statvfs_result((4096, 4096, 100, 0, 0, 10**6, 50, 50, 0, 255))
    monkeypatch.setattr(machine.os, "statvfs", lambda _path: full)
    report = doctor(settings, areas=[Area.MACHINE])
    assert "50 inodes free" in troubles(report)["run.state_dir"]
    assert report.exit_code == 3
    monkeypatch.undo()
    (log_dir.parent / "file").write_text("")
    report = doctor(settings_for(log_dir, run={"state_dir": log_dir.parent / "file" / "state"}), areas=[Area.MACHINE])
    assert (list(troubles(report)), report.exit_code) == (["run.state_dir"], 2)
    monkeypatch.setattr(machine.resource, "getrlimit", lambda _what: (96, 4096))
    report = doctor(settings_for(log_dir), areas=[Area.MACHINE])
    assert "96 file descriptors" in troubles(report)["file descriptors"]


def test_compaction_that_meets_no_topic_or_has_no_java_is_told(log_dir: Path) -> None:
    spark = {"java_home": log_dir.parent / "no-java"}
    settings = settings_for(log_dir, compaction={"topics": ["order"]}, spark=spark)
    report = doctor(settings, areas=[Area.COMPACTION])
    assert set(troubles(report)) == {"topics", "java"}
    assert "match whole names" in found_in(report, "topics").outcome.advice
    assert "no-java" in troubles(report)["java"]
    assert report.exit_code == 1
    here = settings_for(log_dir, compaction={"topics": ["orders"], "engine": "local"}, spark=spark)
    assert troubles(doctor(here, areas=[Area.COMPACTION])) == {}


def test_a_volume_that_evicts_the_broker_when_it_is_full_is_named(
    log_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mountinfo"
    monkeypatch.setattr(machine, "MOUNTS_FILE", mounts)
    compaction = {"topics": ["plain"], "staging_dir": str(tmp_path / "work" / "staging")}
    compacting = settings_for(log_dir, compaction=compaction)
    node = "/var/lib/kubelet/pods/1-2/volumes"
    empty_dir, claim = f"{node}/kubernetes.io~empty-dir/work", f"{node}/kubernetes.io~csi/pvc-1/mount"
    for root, settings, verdict in (
        (empty_dir, compacting, Verdict.WARNING),
        (empty_dir, settings_for(log_dir), Verdict.OK),
        (claim, compacting, Verdict.OK),
    ):
        mounts.write_text(f"1 0 8:1 / / rw - ext4 a rw\n2 1 8:1 {root} {tmp_path / 'work'} rw - ext4 a rw\n")
        outcome = found_in(doctor(settings, areas=[Area.MACHINE]), "work volume").outcome
        assert outcome.verdict is verdict
        assert ("the kubelet evicts the whole pod" in outcome.detail) is (verdict is Verdict.WARNING)
    mounts.unlink()
    outcome = found_in(doctor(compacting, areas=[Area.MACHINE]), "work volume").outcome
    assert outcome.verdict is Verdict.NOT_CHECKED


def test_the_memory_limit_is_held_against_what_the_settings_may_take(
    log_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(memory_limit, "CGROUP_FILES", (limit,))
    settings = settings_for(log_dir)
    for text, verdict in (
        ("max\n", Verdict.NOT_CHECKED),
        ("536870912\n", Verdict.OK),
        ("134217728\n", Verdict.WARNING),
    ):
        limit.write_text(text)
        report = doctor(settings, areas=[Area.MACHINE])
        assert found_in(report, "memory").outcome.verdict is verdict
    limit.write_text("1073741824\n")
    with_spark = settings_for(log_dir, compaction={"topics": ["plain"]})
    assert "spark" in found_in(doctor(with_spark, areas=[Area.MACHINE]), "memory").outcome.advice
