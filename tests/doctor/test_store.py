"""What `doctor` says of the store, of its bucket and of what was left there."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sidecar.clock import SystemClock
from sidecar.doctor import store as doctor_store
from sidecar.doctor.doctor import doctor
from sidecar.doctor.findings import Area, Outcome, Verdict
from sidecar.doctor.store import bucket_rules
from sidecar.errors import StoreDenied, StoreUnavailable
from sidecar.model import ObjectKey
from sidecar.ports import UnfinishedUpload, UploadSource
from sidecar.storage.opening import open_store
from sidecar.store_settings import StoreSettings
from tests.cli.running import in_this_process
from tests.doctor.examined import found_in, settings_for, troubles
from tests.fakes.memory_store import Fault, FaultKind, MemoryStore
from tests.storage.s3_servers import ACCESS_KEY, SECRET_KEY, moto_server, new_bucket, plain_client


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    with moto_server() as endpoint_url:
        yield endpoint_url


def on_moto(endpoint_url: str, bucket: str, **s3: Any) -> dict[str, Any]:
    own = {"endpoint_url": endpoint_url, "region": "us-east-1", "access_key_id": ACCESS_KEY}
    return {"url": f"s3://{bucket}/archive", "s3": {**own, "secret_access_key": SECRET_KEY, **s3}}


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
    (folder,) = {"/".join(key.split("/")[:2]) for key in memory.objects}
    assert folder in found_in(report, "cleared up").outcome.detail
    assert "s3:DeleteObject" in found_in(report, "delete").outcome.advice


def test_a_store_that_lets_two_writers_win_is_a_problem(log_dir: Path, memory: MemoryStore) -> None:
    memory.ignore_if_none_match = True
    report = doctor(settings_for(log_dir), areas=[Area.STORE])
    verdicts = {name: found_in(report, name).outcome.verdict for name in troubles(report)}
    assert verdicts["create-only put"] is Verdict.PROBLEM
    assert found_in(report, "multipart upload with checksum").outcome.verdict is Verdict.OK
    assert report.exit_code == 6
    alone = doctor(settings_for(log_dir, store={"single_writer": True}), areas=[Area.STORE])
    promised = found_in(alone, "create-only put").outcome
    assert promised.verdict is Verdict.WARNING
    assert promised.advice.startswith("single_writer: true is your promise")


class _Shifted(SystemClock):
    """A machine whose wall clock is wrong."""

    def __init__(self, ahead_s: int) -> None:
        self._ahead_ms = ahead_s * 1000

    def now_ms(self) -> int:
        return super().now_ms() + self._ahead_ms


@pytest.mark.parametrize(
    ("ahead_s", "verdict"), [(-300, Verdict.WARNING), (300, Verdict.WARNING), (-1800, Verdict.PROBLEM), (0, Verdict.OK)]
)
def test_a_wrong_clock_is_reported(ahead_s: int, verdict: Verdict, log_dir: Path) -> None:
    report = doctor(settings_for(log_dir), areas=[Area.STORE], clock=_Shifted(ahead_s))
    assert found_in(report, "clock").outcome.verdict is verdict


def test_a_store_without_times_is_a_warning(log_dir: Path, memory: MemoryStore) -> None:
    memory.gives_times = False
    report = doctor(settings_for(log_dir), areas=[Area.STORE])
    assert set(troubles(report)) == {"clock", "modification times"}
    assert "gc deletes nothing" in found_in(report, "clock").outcome.advice
    assert report.exit_code == 0
    assert memory.objects == {}


def test_a_store_that_lists_no_uploads_gets_advice_on_that(log_dir: Path, memory: MemoryStore) -> None:
    for kind, names_the_right in ((FaultKind.UNSUPPORTED, False), (FaultKind.DENIED, True)):
        memory.faults = [Fault("unfinished_uploads", nth, kind) for nth in range(20)]
        report = doctor(settings_for(log_dir), areas=[Area.STORE])
        assert set(troubles(report)) == {"list unfinished uploads"}
        advice = found_in(report, "list unfinished uploads").outcome.advice
        assert "lifecycle rule" in advice
        assert ("s3:ListBucketMultipartUploads" in advice) == names_the_right
    assert report.exit_code == 0
    assert memory.objects == {}


def test_throttling_is_no_problem_of_create_only_puts(log_dir: Path, memory: MemoryStore) -> None:
    """What the store did not answer is not known. It is one problem, of the store's answers, and no advice on writers."""
    puts = 0

    def throttle(operation: str, _key: str) -> None:
        nonlocal puts
        puts += operation == "put_if_absent"
        if operation == "put_if_absent" and 1 < puts < 400:
            raise StoreUnavailable("SlowDown (503): the store is busy").after(2)

    memory.before = throttle
    report = doctor(settings_for(log_dir), areas=[Area.STORE])
    asked = found_in(report, "create-only put").outcome
    assert (asked.verdict, asked.advice) == (Verdict.NOT_CHECKED, "")
    assert "(2 attempts)" in asked.detail
    answers = found_in(report, "every test responded").outcome
    assert (answers.verdict, answers.exit_code) == (Verdict.PROBLEM, 6)
    assert "'create-only put'" in answers.detail
    assert "single_writer" not in json.dumps(report.as_json())
    assert report.exit_code == 6
    assert memory.objects == {}


@pytest.mark.parametrize(
    ("operation", "key_part", "check"),
    [
        ("upload_in_parts", "broken-off", "abort of a multipart upload"),
        ("put_if_absent", "clock", "clock"),
        ("read", "latency", "latency"),
    ],
)
def test_a_check_without_an_answer_is_not_checked_and_is_named(
    operation: str, key_part: str, check: str, log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = InParts(SystemClock())
    monkeypatch.setattr(doctor_store, "open_store", lambda *_arguments: store)

    def throttle(asked: str, key: str) -> None:
        if asked == operation and key_part in key:
            raise StoreUnavailable("UploadPart: SlowDown (503)")

    store.before = throttle
    report = doctor(settings_for(log_dir), areas=[Area.STORE])
    assert found_in(report, check).outcome.verdict is Verdict.NOT_CHECKED
    assert f"'{check}'" in found_in(report, "every test responded").outcome.detail
    assert set(troubles(report)) == {"every test responded"}
    assert report.exit_code == 6


class InParts(MemoryStore):
    """A store in memory that takes uploads in parts."""

    def upload_in_parts(self, key: ObjectKey, source: UploadSource, part_bytes: int) -> int:
        """See `UploadsInParts`."""
        self.before("upload_in_parts", key)
        for position in range(0, source.size_bytes, part_bytes):
            source.read_at(position, min(part_bytes, source.size_bytes - position))
        return self.upload(key, source)


def test_an_upload_whose_abort_was_throttled_is_aborted_again(log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = InParts(SystemClock())
    monkeypatch.setattr(doctor_store, "open_store", lambda *_arguments: store)

    def leave(asked: str, key: str) -> None:
        if asked == "upload_in_parts" and "broken-off" in key:
            store.unfinished.append(UnfinishedUpload(ObjectKey(key), "begun", store.clock.now_ms()))

    store.before = leave
    report = doctor(settings_for(log_dir), areas=[Area.STORE])
    assert found_in(report, "abort of a multipart upload").outcome.verdict is Verdict.OK
    assert store.unfinished == []


def test_the_flag_of_backfill_and_run_is_one_of_doctor_too(log_dir: Path, memory: MemoryStore) -> None:
    memory.ignore_if_none_match = True
    command = ["--json", "doctor", "--area", "store", "--assume-leader", "--log-dir", log_dir, "--archive", "/promised"]
    for flags, verdict in ((["--single-writer"], "warning"), ([], "problem")):
        (answer,) = in_this_process(*command, *flags).lines()
        assert {check["check"]: check["verdict"] for check in answer["checks"]}["create-only put"] == verdict


def test_what_a_killed_probe_left_is_removed_by_the_next_but_not_what_another_is_at(log_dir: Path) -> None:
    folder = log_dir.parent / "archive" / "_probe"
    for name, age_s in (("killed", 3600), ("running", 1)):
        (folder / name).mkdir(parents=True)
        (folder / name / "small").write_bytes(b"probe")
        then_s = SystemClock().now_ms() / 1000 - age_s
        os.utime(folder / name / "small", (then_s, then_s))
    report = doctor(settings_for(log_dir), areas=[Area.STORE])
    assert "removed: 1" in found_in(report, "leftovers of probes").outcome.detail
    assert [path.name for path in folder.rglob("*") if path.is_file()] == ["small"]
    assert (folder / "running" / "small").exists()


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
        assert "keeps old versions" in rules_of(store).detail
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
        expire["Filter"] = {"Prefix": "archive/_probe/"}
        keep["Filter"] = {"Prefix": "archive/one-cluster/"}
        client.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": [expire, keep]})
        assert "no rule expires them" in rules_of(store).detail
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


@pytest.mark.parametrize("present", ["", "a", "a/mistyped"])
def test_directories_that_the_check_made_are_removed_and_others_stay(present: str, tmp_path: Path) -> None:
    (tmp_path / present).mkdir(exist_ok=True, parents=True)
    outcome = in_this_process("doctor", "--archive", tmp_path / "a" / "mistyped", "--area", "store")
    assert outcome.code == 0, outcome
    expected = [tmp_path / name for name in ("a", "a/mistyped") if present.startswith(name)]
    assert sorted(tmp_path.rglob("*")) == expected
