"""Settings out of the environment, and secrets, wherever they stand."""

from __future__ import annotations

import errno
import json
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from threading import Event

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.config import load_settings
from sidecar.config import secrets as secrets_module
from sidecar.config.environment import variable_of
from sidecar.config.paths import all_settings
from sidecar.config.secrets import EARLIER_MAX, Secrets
from sidecar.errors import SettingsError
from tests.loading_settings import URL, a_file, refusal


def test_secrets_are_never_shown(tmp_path: Path) -> None:
    secret = "wJalrXUtnFEMI-K7MDENG"
    secret_file = tmp_path / "key"
    secret_file.write_text(f"{secret}\n")
    environment = {
        "TIERED_SIDECAR__STORE__S3__ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
        "TIERED_SIDECAR__STORE__S3__SECRET_ACCESS_KEY_FILE": str(secret_file),
    }
    loaded = load_settings(flags=URL, environment=environment)
    assert loaded.settings.store.s3.secret_access_key_file == secret_file
    shown = json.dumps(loaded.shown()) + repr(loaded) + str(loaded.settings.model_dump(mode="json"))
    assert secret not in shown
    assert "AKIA" not in shown
    assert set(loaded.secrets()) == {secret, "AKIAIOSFODNN7EXAMPLE"}
    assert loaded.shown()["store.s3.access_key_id"] == {
        "value": "********",
        "source": "environment TIERED_SIDECAR__STORE__S3__ACCESS_KEY_ID",
    }


def test_a_wrong_secret_is_refused_without_being_repeated(tmp_path: Path) -> None:
    file = a_file(tmp_path, "store: {url: /archive, s3: {secret_access_key: [hunter22]}}")
    assert "hunter22" not in refusal(config_file=file)
    assert "hunter22" not in refusal(flags={"store.url": "s3://user:hunter22@bucket/prefix"})


def test_a_secret_given_twice_is_refused(tmp_path: Path) -> None:
    secret_file = tmp_path / "key"
    secret_file.write_text("x")
    name = variable_of("store.s3.access_key_id")
    text = refusal(flags=URL, environment={name: "a", f"{name}_FILE": str(secret_file)})
    assert "give access_key_id or access_key_id_file, not both" in text


def test_of_a_secret_and_its_file_the_stronger_source_holds(tmp_path: Path) -> None:
    in_file = "store: {url: /archive, s3: {access_key_id: old, secret_access_key: old}}\n"
    names = [variable_of(f"store.s3.{name}_file") for name in ("access_key_id", "secret_access_key")]
    loaded = load_settings(config_file=a_file(tmp_path, in_file), environment=dict.fromkeys(names, "/keys/file"))
    s3 = loaded.settings.store.s3
    assert (s3.access_key_id, s3.secret_access_key) == (None, None)
    assert set(map(str, s3.key_files.values())) == {"/keys/file"}
    assert loaded.shown()["store.s3.access_key_id"] == {"value": None, "source": "default"}
    in_file = "store: {url: /archive, s3: {access_key_id_file: /keys/file, secret_access_key_file: /keys/file}}\n"
    names = [variable_of(f"store.s3.{name}") for name in ("access_key_id", "secret_access_key")]
    loaded = load_settings(config_file=a_file(tmp_path, in_file), environment=dict.fromkeys(names, "new-value"))
    assert loaded.settings.store.s3.key_files == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a,b", ("a", "b")), ('["a{1,2}", "b"]', ("a{1,2}", "b")), ("a", ("a",)), ("a, b", ("a", "b"))],
)
def test_lists_in_variables(text: str, expected: tuple[str, ...]) -> None:
    environment = {"TIERED_SIDECAR__TOPICS__INCLUDE": text}
    assert load_settings(flags=URL, environment=environment).settings.topics.include == expected


def test_null_unsets_and_empty_is_not_set() -> None:
    environment = {
        "TIERED_SIDECAR__HTTP__BIND": "null",
        "TIERED_SIDECAR__RUN__WORKERS": "",
        "TIERED_SIDECAR_CONFIG": "x",
    }
    settings = load_settings(flags=URL, environment=environment).settings
    assert settings.http.bind is None
    assert settings.http.address is None
    assert settings.run.workers == 2


@given(st.dictionaries(st.text(max_size=12), st.text(max_size=12), max_size=4))
def test_any_environment_is_taken_or_refused(variables: dict[str, str]) -> None:
    environment = {f"TIERED_SIDECAR__{name}": value for name, value in variables.items()}
    try:
        loaded = load_settings(flags=URL, environment=environment)
    except SettingsError:
        return
    assert loaded.settings.store.url == URL["store.url"]


@given(st.sampled_from(sorted(all_settings())), st.text(max_size=20))
def test_any_text_for_any_setting_is_taken_or_refused(path: str, text: str) -> None:
    with suppress(SettingsError):
        load_settings(flags=URL, environment={variable_of(path): text})


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("TIERED_SIDECAR_STORE_URL", "did you mean TIERED_SIDECAR__STORE__URL?"),
        ("TIERED_SIDECAR_STORE_S3_REGION", "did you mean TIERED_SIDECAR__STORE__S3__REGION?"),
        ("TIERED_SIDECAR_NONSENSE", "settings begin with TIERED_SIDECAR__"),
    ],
)
def test_variables_that_almost_set_something_are_refused(name: str, hint: str) -> None:
    assert hint in refusal(flags=URL, environment={name: "x"})
    assert load_settings(flags=URL, environment={name: ""}).sources == {"store.url": "flag"}


@pytest.mark.parametrize(
    "name",
    [
        *("TIERED_SIDECAR_CONFIG", "TIERED_SIDECAR_SERVICE_HOST", "TIERED_SIDECAR_SERVICE_PORT_METRICS"),
        *("TIERED_SIDECAR_PORT", "TIERED_SIDECAR_PORT_9308_TCP_ADDR", "TIERED_SIDECAR_METRICS_SERVICE_HOST"),
    ],
)
def test_variables_that_kubernetes_sets_for_services_are_passed_over(name: str) -> None:
    assert load_settings(flags=URL, environment={name: "tcp://10.0.0.1:9308"}).sources == {"store.url": "flag"}


def test_secrets_that_stand_in_files_are_secrets_too(tmp_path: Path) -> None:
    names = ("password", "key-password", "token")
    files = {name: tmp_path / name for name in names}
    for name, file in files.items():
        file.write_text(f"{name}-of-the-broker\n")
    loaded = load_settings(
        flags={
            **URL,
            "broker.connection.bootstrap_servers": ["localhost:9092"],
            "broker.connection.security_protocol": "SASL_SSL",
            "broker.connection.sasl_mechanism": "PLAIN",
            "broker.connection.sasl_username": "me",
            "broker.connection.sasl_password_file": files["password"],
            "broker.connection.ssl_key_password_file": files["key-password"],
            "http.token_file": files["token"],
        }
    )
    assert set(loaded.secrets()) == {f"{name}-of-the-broker" for name in names}
    for file in files.values():
        file.unlink()
    assert tuple(loaded.secrets()) == ()


def test_a_secret_that_is_replaced_in_its_file_is_one_too_and_the_earlier_ones_remain_some(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("token-of-monday")
    secrets = Secrets(("given",), [file])
    for day in ("monday", "tuesday"):
        fresh = tmp_path / "fresh"
        fresh.write_text(f"token-of-{day}\n")
        fresh.rename(file)
        assert f"token-of-{day}" in secrets
    assert set(secrets) == {"given", "token-of-monday", "token-of-tuesday"}
    file.unlink()
    assert set(secrets) == {"given", "token-of-monday", "token-of-tuesday"}
    for number in range(2 * EARLIER_MAX):
        file.write_text(f"token {number:09}" + " " * number)
        assert f"token {number:09}" in secrets
    assert len(set(secrets)) == EARLIER_MAX + 1


def test_a_secret_whose_file_could_not_be_read_once_is_one_as_soon_as_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text("token-of-monday")
    secrets = Secrets((), [file])

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", refuse)
        assert tuple(secrets) == ()
    assert tuple(secrets) == ("token-of-monday",)


def test_while_one_thread_reads_a_secret_no_other_goes_on_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, is_reading, may_read = tmp_path / "token", Event(), Event()
    file.write_text("token-of-monday")
    text_of = secrets_module.read_secret

    def slow(file: Path) -> str:
        is_reading.set()
        may_read.wait()
        return text_of(file)

    monkeypatch.setattr(secrets_module, "read_secret", slow)
    secrets = Secrets((), [file])
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(tuple, secrets)
        is_reading.wait()
        second = pool.submit(tuple, secrets)
        wait([second], 0.2)
        may_read.set()
        assert (first.result(), second.result()) == (("token-of-monday",), ("token-of-monday",))
