"""Which settings a process that runs may take over, and how settings are compared."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sidecar.config.changes import SettingsSource, changes_between, fingerprint
from sidecar.config.loading import LoadedSettings, load_settings
from sidecar.config.paths import all_settings


def loaded(tmp_path: Path, text: str = "", **environment: str) -> LoadedSettings:
    file = tmp_path / "settings.yaml"
    file.write_text(f"store: {{url: {tmp_path}/archive}}\n{text}")
    return load_settings(config_file=file, environment=environment)


@pytest.mark.parametrize("section", ["store.s3", "broker.connection", "spark", "http"])
def test_what_connections_and_servers_are_made_of_needs_a_restart(section: str) -> None:
    found = [setting for path, setting in all_settings().items() if path.startswith(f"{section}.")]
    assert found
    assert not any(setting.is_reloadable for setting in found)


def test_secrets_and_places_need_a_restart() -> None:
    reloadable = {path for path, setting in all_settings().items() if setting.is_reloadable}
    assert not any(all_settings()[path].is_secret for path in reloadable)
    assert reloadable.isdisjoint({"store.url", "run.state_dir", "broker.log_dirs", "compaction.staging_dir"})
    assert {"topics.include", "run.scan_interval_s", "store.bandwidth_bytes_per_s", "compaction.topics"} < reloadable


def test_changes_are_sorted_into_those_that_may_be_and_those_that_need_a_restart(tmp_path: Path) -> None:
    old = loaded(tmp_path)
    new = loaded(tmp_path, "run: {workers: 5, state_dir: /elsewhere}\ntopics: {exclude: [noise]}\n")
    reloadable, fixed = changes_between(old, new)
    assert reloadable == ("topics.exclude", "run.workers")
    assert fixed == ("run.state_dir",)
    assert changes_between(old, loaded(tmp_path))[0] == ()


def test_to_set_what_was_the_default_is_a_change_since_the_broker_s_word_counts_no_more(tmp_path: Path) -> None:
    reloadable, _ = changes_between(loaded(tmp_path), loaded(tmp_path, "compaction: {min_compaction_lag_ms: 0}\n"))
    assert reloadable == ("compaction.min_compaction_lag_ms",)
    # Nothing stands behind these: the same value is the same.
    assert changes_between(loaded(tmp_path), loaded(tmp_path, "run: {watch: true}\n"))[1] == ()


def test_a_fingerprint_is_that_of_the_values_and_holds_no_secret(tmp_path: Path) -> None:
    keys = {"TIERED_SIDECAR__STORE__S3__ACCESS_KEY_ID": "one", "TIERED_SIDECAR__STORE__S3__SECRET_ACCESS_KEY": "two"}
    first = fingerprint(loaded(tmp_path, **keys))
    assert first == fingerprint(loaded(tmp_path, **{name: f"{value}-other" for name, value in keys.items()}))
    assert first != fingerprint(loaded(tmp_path, "run: {workers: 5}\n", **keys))
    by_variable = loaded(tmp_path, TIERED_SIDECAR__RUN__WORKERS="5", **keys)
    assert fingerprint(by_variable) == fingerprint(loaded(tmp_path, "run: {workers: 5}\n", **keys))


def test_the_state_of_a_file_changes_with_a_link_above_it(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "settings.yaml").write_text("same")
        os.utime(tmp_path / name / "settings.yaml", (1, 1))
    (tmp_path / "..data").symlink_to("one")
    (tmp_path / "settings.yaml").symlink_to("..data/settings.yaml")
    source = SettingsSource(tmp_path / "settings.yaml", lambda: loaded(tmp_path / "one"), lambda _loaded: None)
    before = source.state()
    (tmp_path / "..new").symlink_to("two")
    (tmp_path / "..new").rename(tmp_path / "..data")
    assert None not in (before, source.state())
    assert source.state() != before
    (tmp_path / "..data").unlink()
    assert source.state() is None
    assert SettingsSource(None, lambda: loaded(tmp_path / "one"), lambda _loaded: None).state() is None
