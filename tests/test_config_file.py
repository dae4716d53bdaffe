"""Settings files: what is malformed is refused with its place, what was expected is said in words of the file."""

from __future__ import annotations

import json
import tempfile
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.config import load_settings
from sidecar.errors import SettingsError
from tests.loading_settings import URL, a_file, refusal


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("store: {url: /a}\nstore: {url: /b}\n", "line 2, column 1: key 'store' appears twice"),
        ("store: [", "line 1, column 9"),
        ("- a\n", "expected a mapping of sections, found a list"),
        ("store: /archive\n", "store"),
        ("\x00", "no YAML"),
        ("a: *b\n", "undefined alias"),
        ("store: &s\n  x: *s\n", "line 1, column 8: an alias refers to the value that contains it"),
        ("store: {url: /a}\nbroker:\n  log_dirs: &l [*l]\n", "line 3, column 13: an alias refers to"),
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
    "text",
    [
        'broker: {log_dirs: ["a\\0b"]}',
        'run: {state_dir: "a\\0b"}',
        'http: {bind: "\\0:1"}',
        'store: {s3: {ca_file: "a\\0b"}}',
    ],
)
def test_a_nul_is_refused_where_it_stands(text: str, tmp_path: Path) -> None:
    file = a_file(tmp_path, text)
    path = text.replace(": {", ".").partition(":")[0]
    assert refusal(flags=URL, config_file=file).startswith(f"{path} ({file}): it contains a NUL character")


@pytest.mark.parametrize(
    "text",
    [
        'broker: {log_dirs: ["/kafka", ""]}',
        "run: {state_dir: ''}",
        "compaction: {staging_dir: ''}",
        "store: {s3: {ca_file: ''}}",
    ],
)
def test_an_empty_path_is_not_the_current_directory(text: str, tmp_path: Path) -> None:
    file = a_file(tmp_path, text)
    path = text.replace(": {", ".").partition(":")[0]
    assert refusal(flags=URL, config_file=file).startswith(f"{path} ({file}): a path must not be empty")


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    assert "No such file" in refusal(config_file=tmp_path / "nowhere.yaml")
    (tmp_path / "latin1.yaml").write_bytes(b"store: {url: /\xe9}")
    assert "at byte 14" in refusal(config_file=tmp_path / "latin1.yaml")


def test_empty_sections_and_files_are_defaults(tmp_path: Path) -> None:
    file = a_file(tmp_path, "# nothing yet\nrun:\nhttp: {}\n")
    assert load_settings(flags=URL, config_file=file).settings == load_settings(flags=URL).settings


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
        ("run.workers", True, "expected a number, found True"),
        ("run.retry_wait_s", False, "expected a number, found False"),
        ("store.bandwidth_bytes_per_s", True, "expected 65536 or more, found True"),
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
