"""One archive has one state directory, however `store.url` spells it. A second one would not know what the first remembers."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from sidecar.config import load_settings
from sidecar.errors import SettingsError
from sidecar.host.journal import Journal, state_directory
from sidecar.runner import assembly
from sidecar.storage.opening import open_store
from sidecar.store_settings import StoreSettings
from tests.cli.running import in_this_process
from tests.golden import golden


def _directory(state: Path, url: str) -> Path:
    store = open_store(StoreSettings.model_validate({"url": url, "s3": {"region": "eu-central-1"}}))
    return state_directory(state, store.url)


def _literal(state: Path, url: str) -> Path:
    """Named by this spelling."""
    return state / sha256(url.encode()).hexdigest()[:16]


def test_every_spelling_of_a_directory_has_the_same_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("x y", "z"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "x y")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    x = str(tmp_path / "x y")
    uri = (tmp_path / "x y").as_uri()
    spellings = [x, f"{x}/", "x y", "./x y", "~/x y", "link", "z/../x y", uri, f"{uri}/", f"{tmp_path}//x y", f"/{x}"]
    assert {_directory(tmp_path, url) for url in spellings} == {_literal(tmp_path, x)}
    assert _directory(tmp_path, f"{x}2") != _directory(tmp_path, x)


@pytest.mark.parametrize("url", ["s3://archive/p", "s3://archive/p/", "s3://archive//p", "s3://archive/p//"])
def test_slashes_around_a_prefix_do_not_change_the_state(tmp_path: Path, url: str) -> None:
    assert _directory(tmp_path, url) == _literal(tmp_path, "s3://archive/p")


def test_other_buckets_and_prefixes_have_other_states(tmp_path: Path) -> None:
    urls = ["s3://archive", "s3://archive/p", "s3://archive/P", "s3://archive/p/q", "s3://archive2/p"]
    assert len({_directory(tmp_path, url) for url in urls}) == len(urls)


def test_another_spelling_notices_that_the_newest_commit_is_missing(tmp_path: Path) -> None:
    archive, flags = tmp_path / "archive", ["--state-dir", tmp_path / "state", "--log-dir", golden("4.3.0") / "logs"]
    settled = ["--set", "broker.settle_ms=0", "--set", "broker.snapshot_grace_ms=0"]
    backfill = ["backfill", *flags, "--assume-leader", "--topic", "append-time", *settled, "--archive"]
    assert in_this_process(*backfill, archive).code == 0
    newest = max(archive.rglob("commits/*.json"))
    newest.unlink()
    for checkpoint in archive.rglob(f"checkpoints/{newest.name}"):
        checkpoint.unlink()
    outcome = in_this_process(*backfill, f"{archive}/")
    assert outcome.code != 0
    assert "is missing, although this sidecar" in outcome.err


def test_a_process_has_its_directory_before_it_probes_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The probe takes long. A `backfill` that begins meanwhile is refused, and does not end the `run` that was there first."""
    url, state = (tmp_path / "archive").as_uri(), tmp_path / "state"
    given = {"store.url": url, "broker.log_dirs": [golden("4.3.0") / "logs"], "run.state_dir": state}
    probes: list[object] = []

    def probe(*arguments: object, **_options: object) -> None:
        with pytest.raises(SettingsError, match="another tiered-sidecar process uses this state directory"):
            Journal(_directory(state, url))
        probes.append(arguments)

    monkeypatch.setattr(assembly, "probe_store", probe)
    with assembly.open_tools(load_settings(flags=given).settings, repeats=True):
        assert len(probes) == 1
