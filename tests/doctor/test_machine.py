"""What `doctor` says of disks, descriptors and memory of this machine, and of compaction on it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sidecar.doctor import machine
from sidecar.doctor.doctor import doctor
from sidecar.doctor.findings import Area, Verdict
from sidecar.host import limits
from tests.cli.unprivileged import tiered_sidecar
from tests.doctor.examined import found_in, settings_for, troubles


def test_a_place_that_cannot_be_written_to_says_what_to_do(log_dir: Path) -> None:
    report = doctor(settings_for(log_dir, store={"url": "file:///proc/nowhere"}), areas=[Area.STORE])
    assert "the bucket or directory of store.url" in found_in(report, "write").outcome.advice


def test_directories_that_may_not_be_used_say_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "closed" / "state").mkdir(parents=True)
    (tmp_path / "archive").mkdir()
    (tmp_path / "closed").chmod(0)
    (tmp_path / "archive").chmod(0o500)
    places = ("--archive", tmp_path / "archive", "--state-dir", tmp_path / "closed" / "state")
    found = tiered_sidecar("doctor", *places, "--area", "machine", "--area", "store", "--json")
    (tmp_path / "closed").chmod(0o700)
    (tmp_path / "archive").chmod(0o700)
    assert found.code == 3, found
    assert "set run.state_dir to a directory that user" in found.out
    assert "give this process's user permission to read and write there" in found.out
    assert "Keys or permissions" not in found.out


def test_a_full_disk_a_place_that_is_none_and_too_few_descriptors(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_for(
        log_dir, compaction={"topics": ["plain"], "max_job_bytes": 1 << 60}, spark={"engine": "local"}
    )
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
    monkeypatch.setattr(machine.resource, "getrlimit", lambda _what: (96, 96))
    report = doctor(settings_for(log_dir), areas=[Area.MACHINE])
    assert "96 file descriptors" in troubles(report)["file descriptors"]
    for soft, hard, held in ((96, 4096, True), (512, 512, False), (1024, 1024, True)):
        monkeypatch.setattr(machine.resource, "getrlimit", lambda _what, limits=(soft, hard): limits)
        report = doctor(settings_for(log_dir), areas=[Area.MACHINE])
        assert ("file descriptors" not in troubles(report)) == held, (soft, hard)


def test_compaction_that_meets_no_topic_or_has_no_java_is_reported(log_dir: Path) -> None:
    spark = {"java_home": log_dir.parent / "no-java"}
    settings = settings_for(log_dir, compaction={"topics": ["order"]}, spark=spark)
    report = doctor(settings, areas=[Area.COMPACTION])
    assert set(troubles(report)) == {"topics", "java"}
    assert "match whole names" in found_in(report, "topics").outcome.advice
    assert "no-java" in troubles(report)["java"]
    assert report.exit_code == 1
    here = settings_for(log_dir, compaction={"topics": ["orders"]}, spark={**spark, "engine": "local"})
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
    monkeypatch.setattr(limits, "MEMORY_FILES", (limit,))
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
