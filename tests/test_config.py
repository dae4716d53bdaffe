"""Settings: precedence, files, refusals, schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sidecar.config import Settings, load_settings, read_assignments
from sidecar.config.environment import variable_of
from sidecar.config.meanings import meanings
from sidecar.config.paths import all_sections, all_settings
from sidecar.errors import SettingsError
from tests.loading_settings import URL, a_file, refusal


def test_a_flag_wins_over_the_environment_that_over_the_file_that_over_the_default(tmp_path: Path) -> None:
    file = a_file(tmp_path, "store: {url: /archive}\nrun: {workers: 3, uploads_ahead: 3, max_queue: 3}\n")
    environment = {"TIERED_SIDECAR__RUN__WORKERS": "4", "TIERED_SIDECAR__RUN__UPLOADS_AHEAD": "4"}
    loaded = load_settings(flags={"run.workers": 5}, config_file=file, environment=environment)
    run = loaded.settings.run
    assert (run.workers, run.uploads_ahead, run.max_queue, run.scan_interval_s) == (5, 4, 3, 30.0)
    shown = loaded.shown()
    assert [
        shown[f"run.{name}"]["source"] for name in ("workers", "uploads_ahead", "max_queue", "scan_interval_s")
    ] == [
        "flag",
        "environment TIERED_SIDECAR__RUN__UPLOADS_AHEAD",
        str(file),
        "default",
    ]


@pytest.mark.parametrize("section", ["", *sorted(f"{section}." for section in all_sections())])
def test_a_misspelt_key_is_refused_in_every_section(section: str, tmp_path: Path) -> None:
    known = [path for path in all_settings() if path.startswith(section) and "." not in path.removeprefix(section)]
    known += [path for path in all_sections() if path.startswith(section) and "." not in path.removeprefix(section)]
    right = max(known, key=len)
    wrong = right[:-2] + right[-1] + right[-2]
    tree: dict[str, Any] = {"store": {"url": "/archive"}}
    place = tree
    for name in wrong.split(".")[:-1]:
        place = place.setdefault(name, {})
    place[wrong.rpartition(".")[2]] = {}
    file = a_file(tmp_path, json.dumps(tree))
    assert refusal(config_file=file) == f"{wrong} ({file}): unknown setting; did you mean {right}?"
    if section:
        message = refusal(environment={variable_of(wrong): "1"}, flags=URL)
        assert message == f"{wrong} (environment {variable_of(wrong)}): unknown setting; did you mean {right}?"


def test_a_key_in_the_wrong_section_is_led_to_the_right_one(tmp_path: Path) -> None:
    message = refusal(config_file=a_file(tmp_path, "store: {url: /archive, region: eu-west-1}"))
    assert message.endswith("unknown setting; did you mean store.s3.region?")


def test_every_wrong_value_is_named_at_once_with_its_source(tmp_path: Path) -> None:
    file = a_file(tmp_path, "store: {url: /archive}\nrun: {workers: 99}\nlog: {level: loud}\n")
    message = refusal(config_file=file, environment={"TIERED_SIDECAR__HTTP__BIND": "localhost"})
    lines = message.splitlines()
    assert len(lines) == 3
    assert f"run.workers ({file}): expected 64 or less, found 99" in lines
    assert any(line.startswith(f"log.level ({file}): ") and line.endswith("found 'loud'") for line in lines)
    assert any(line.startswith("http.bind (environment TIERED_SIDECAR__HTTP__BIND): ") for line in lines)


def test_a_missing_archive_is_said_with_the_ways_to_set_it() -> None:
    assert refusal().startswith("store.url: not set, and there is no default")


@pytest.mark.parametrize("url", ["/kafka/logs/archive", "file:///kafka/logs/archive", "/kafka/logs"])
def test_the_archive_may_not_lie_in_a_log_dir(url: str) -> None:
    message = refusal(flags={"store.url": url, "broker.log_dirs": ["/kafka/logs"]})
    assert "to which the sidecar never writes" in message


def test_the_state_may_not_lie_in_a_log_dir_not_even_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "logs")
    flags = {**URL, "broker.log_dirs": [tmp_path / "logs"], "run.state_dir": tmp_path / "link" / "state"}
    assert "run.state_dir" in refusal(flags=flags)


@pytest.mark.parametrize("setting", ["run.state_dir", "compaction.staging_dir"])
@pytest.mark.parametrize("url", ["{}", "file://{}", "{}/link"])
@pytest.mark.parametrize("below", ["", "/state"])
def test_work_directories_may_not_lie_in_the_archive(setting: str, url: str, below: str, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    archive = url.format(tmp_path)
    message = refusal(flags={"store.url": archive, setting: f"{tmp_path}{below}"})
    assert message == f"{setting} {tmp_path}{below} is in the archive {archive}: set another directory"
    assert load_settings(flags={"store.url": archive, setting: f"{tmp_path}-state"})


@pytest.mark.parametrize("url", ["{}/state/archive", "file://{}/state/archive", "{}/link/archive"])
def test_the_archive_may_not_lie_in_the_state_directory(url: str, tmp_path: Path) -> None:
    """Whoever deletes the state directory, which costs only time, would delete the archive."""
    (tmp_path / "link").symlink_to(tmp_path / "state")
    archive, state_dir = url.format(tmp_path), tmp_path / "state"
    message = refusal(flags={"store.url": archive, "run.state_dir": state_dir})
    assert message.startswith("store.url /")
    assert f" is in the sidecar's own directory run.state_dir {state_dir}: set another directory" in message
    # A directory for work files may lie around it, such as /data.
    assert load_settings(flags={"store.url": archive, "compaction.staging_dir": state_dir})


@pytest.mark.parametrize(
    "url", ["file://nas/archive", "local://nas/archive", "file://archive", "file://localhost", "file://"]
)
def test_a_file_url_of_another_host_or_of_no_directory_is_refused(url: str) -> None:
    message = refusal(flags={"store.url": url})
    assert f"{url} names a host or no directory" in message
    assert "file:///archive" in message


def test_a_file_url_may_name_this_host() -> None:
    for url in ("file:///archive", "file://localhost/archive"):
        assert load_settings(flags={"store.url": url}).settings.store.directory == Path("/archive")


@pytest.mark.parametrize(
    ("bind", "address"),
    [
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("[::1]:9308", ("::1", 9308)),
        ("localhost:1", ("localhost", 1)),
    ],
)
def test_addresses(bind: str, address: tuple[str, int]) -> None:
    assert load_settings(flags={**URL, "http.bind": bind}).settings.http.address == address


@pytest.mark.parametrize("bind", ["", "9308", ":9308", "localhost", "::1:9308", "host:99999", "host:-1", "host:٣"])
def test_wrong_addresses_are_refused(bind: str) -> None:
    assert "http.bind" in refusal(flags={**URL, "http.bind": bind})


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("topics.include", ["("]),
        ("broker.cluster_id", "a/b"),
        ("broker.cluster_id", ".."),
        ("run.scan_interval_s", float("nan")),
        ("run.scan_interval_s", float("inf")),
        ("run.scan_interval_s", 0),
        ("broker.settle_ms", -1),
        ("store.single_writer", "perhaps"),
    ],
)
def test_values_that_cannot_work_are_refused(path: str, value: object) -> None:
    assert refusal(flags={**URL, path: value}).startswith(f"{path} (flag): ")


def test_assignments_take_any_setting_but_secrets() -> None:
    assert read_assignments(["run.workers=4", "topics.include=a,b", "http.bind=null", "run.workers=5"]) == {
        "run.workers": "5",
        "topics.include": ["a", "b"],
        "http.bind": None,
    }
    for wrong in ("store.s3.secret_access_key=x", "run.worker=1", "run=1", "run.workers", "=", 'topics.include=["'):
        with pytest.raises(SettingsError):
            read_assignments([wrong])


@pytest.mark.parametrize("path", ["broker.log_dirs", "topics.include"])
def test_an_empty_assignment_is_no_list_of_one_empty_element(path: str) -> None:
    """As a log directory, that element would be the working directory."""
    assert refusal(flags={**URL, **read_assignments([f"{path}="])}).startswith(f"{path} (flag): expected a list")


def test_settings_do_not_change() -> None:
    settings = load_settings(flags=URL).settings
    with pytest.raises(ValueError, match="frozen"):
        settings.run.workers = 3
    assert hash(settings) == hash(load_settings(flags=URL).settings)


def test_every_setting_says_what_it_means_and_the_schema_is_closed() -> None:
    for path, setting in all_settings().items():
        assert meanings(setting.section)[path.rpartition(".")[2]], path
    schema = Settings.model_json_schema()
    for definition in [schema, *schema["$defs"].values()]:
        if definition["type"] == "object":
            assert definition["additionalProperties"] is False


def test_quantities_carry_their_unit() -> None:
    unitless = {
        "broker_id",
        "assume_leader",
        "workers",
        "uploads_ahead",
        "max_queue",
        "max_connections",
        "readers_per_disk",
        "attempts",
        "min_cleanable_dirty_ratio",
    }
    for path, setting in all_settings().items():
        name = path.rpartition(".")[2]
        if any(kind in str(setting.field.annotation) for kind in ("int", "float")) and name not in unitless:
            assert {"ms", "s", "bytes", "percent", "concurrency"} & set(name.split("_")), path


def test_a_home_directory_that_nobody_has_is_refused() -> None:
    assert "home directory" in refusal(flags={"store.url": "~nosuchuser/archive"})
    assert "home directory" in refusal(flags={**URL, "run.state_dir": "~nosuchuser/state"})


def test_links_in_a_circle_are_no_crash(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert load_settings(flags={"store.url": str(tmp_path / "a"), "broker.log_dirs": [tmp_path / "b"]})


def test_settings_choose_no_topic_that_no_archive_may_have() -> None:
    topics = load_settings(flags={**URL, "topics.internal": True}).settings.topics
    chosen = [name for name in ("__consumer_offsets", "__cluster_metadata") if topics.filter.accepts(name)]
    assert chosen == ["__consumer_offsets"]
