"""Settings: precedence, files, refusals, schema."""

from __future__ import annotations

import json
import tempfile
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.config import Settings, load_settings, read_assignments
from sidecar.config.environment import variable_of
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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("store: {url: /a}\nstore: {url: /b}\n", "line 2, column 1: key 'store' stands here twice"),
        ("store: [", "line 1, column 9"),
        ("- a\n", "expected a mapping of sections, found a list"),
        ("store: /archive\n", "store"),
        ("\x00", "no YAML"),
        ("a: *b\n", "undefined alias"),
        ("store: &s\n  x: *s\n", "line 1, column 8: an alias below stands for what it is in"),
        ("store: {url: /a}\nbroker:\n  log_dirs: &l [*l]\n", "line 3, column 13: an alias below stands for"),
        (
            "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
            + "".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 10)}]\n" for a, b in pairwise("abcdefghi")),
            "more than 100000 values",
        ),
        ("run: " + "{a: " * 5000 + "}" * 5000, "no YAML"),
        ("store: {url: !env HOME}", "line 1, column 14: the tag !env is not supported"),
        ("store: {url: !!binary aGk=}", "the tag !!binary is not supported"),
        ("store: !!set {url}", "the tag !!set is not supported"),
        ("store.url: /archive\n", "not with dots"),
    ],
)
def test_a_malformed_file_is_refused_with_the_place(text: str, expected: str, tmp_path: Path) -> None:
    file = a_file(tmp_path, text)
    message = refusal(config_file=file)
    assert str(file) in message or expected in {"store", "not with dots"}
    assert expected in message


def test_aliases_that_end_are_welcome(tmp_path: Path) -> None:
    file = a_file(tmp_path, "topics: {include: &some [a, b], exclude: *some}\n")
    topics = load_settings(flags=URL, config_file=file).settings.topics
    assert topics.include == topics.exclude == ("a", "b")


@pytest.mark.parametrize(
    "text", ['broker: {log_dirs: ["a\\0b"]}', 'run: {state_dir: "a\\0b"}', 'http: {bind: "\\0:1"}']
)
def test_a_nul_is_refused_where_it_stands(text: str, tmp_path: Path) -> None:
    file = a_file(tmp_path, text)
    path = text.replace(": {", ".").partition(":")[0]
    assert refusal(flags=URL, config_file=file).startswith(f"{path} ({file}): there is a NUL character")


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    assert "No such file" in refusal(config_file=tmp_path / "nowhere.yaml")
    (tmp_path / "latin1.yaml").write_bytes(b"store: {url: /\xe9}")
    assert "at byte 14" in refusal(config_file=tmp_path / "latin1.yaml")


def test_empty_sections_and_files_are_defaults(tmp_path: Path) -> None:
    file = a_file(tmp_path, "# nothing yet\nrun:\nhttp: {}\n")
    assert load_settings(flags=URL, config_file=file).settings == load_settings(flags=URL).settings


@pytest.mark.parametrize("url", ["/kafka/logs/archive", "file:///kafka/logs/archive", "/kafka/logs"])
def test_the_archive_may_not_lie_in_a_log_dir(url: str) -> None:
    message = refusal(flags={"store.url": url, "broker.log_dirs": ["/kafka/logs"]})
    assert "never written to" in message


def test_the_state_may_not_lie_in_a_log_dir_not_even_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "logs")
    flags = {**URL, "broker.log_dirs": [tmp_path / "logs"], "run.state_dir": tmp_path / "link" / "state"}
    assert "run.state_dir" in refusal(flags=flags)


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


def test_settings_do_not_change() -> None:
    settings = load_settings(flags=URL).settings
    with pytest.raises(ValueError, match="frozen"):
        settings.run.workers = 3
    assert hash(settings) == hash(load_settings(flags=URL).settings)


def test_every_setting_says_what_it_means_and_the_schema_is_closed() -> None:
    for path, setting in all_settings().items():
        assert setting.field.description, path
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


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=6,
    )
)
def test_any_yaml_value_is_taken_or_refused(value: object) -> None:
    with tempfile.TemporaryDirectory() as directory:
        file = a_file(Path(directory), json.dumps({"store": {"url": "/archive"}, "run": value}))
        with suppress(SettingsError):
            load_settings(config_file=file)


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("topics.include", "orders", "expected a list, such as [orders], found 'orders'"),
        ("broker.log_dirs", "/kafka", "expected a list, such as [/kafka], found '/kafka'"),
        ("broker.log_dirs", [1], "expected a path, found 1"),
        ("broker.log_dirs", [None], "expected a path, found nothing"),
        ("topics.include", [1], "expected text, found 1"),
        ("run.workers", 2.5, "expected a whole number, found 2.5"),
        ("run.workers", "two", "expected a whole number, found 'two'"),
        ("run.workers", [], "expected a whole number, found a list"),
        ("run.scan_interval_s", 0, "expected more than 0, found 0"),
        ("run.watch", "perhaps", "expected true or false, found 'perhaps'"),
        ("log.level", "loud", "expected 'debug', 'info', 'warning' or 'error', found 'loud'"),
        ("store.bandwidth_bytes_per_s", 1, "expected 65536 or more, found 1"),
        ("run.state_dir", 3, "expected a path, found 3"),
    ],
)
def test_what_was_expected_is_said_in_words_of_the_file(path: str, value: object, expected: str) -> None:
    assert refusal(flags={**URL, path: value}) == f"{path} (flag): {expected}"


def test_a_section_that_is_none_is_refused(tmp_path: Path) -> None:
    assert "expected a section" in refusal(config_file=a_file(tmp_path, "store: /archive\n"))


def test_a_home_directory_that_nobody_has_is_refused() -> None:
    assert "home directory" in refusal(flags={"store.url": "~nosuchuser/archive"})
    assert "home directory" in refusal(flags={**URL, "run.state_dir": "~nosuchuser/state"})


def test_links_in_a_circle_are_no_crash(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert load_settings(flags={"store.url": str(tmp_path / "a"), "broker.log_dirs": [tmp_path / "b"]})
