"""Access keys in files: each request is signed with what the files say at that moment, and never with half of a replacement."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import structlog
from pydantic import SecretStr, ValidationError

from sidecar.errors import SettingsError
from sidecar.storage.s3 import key_files
from sidecar.storage.s3.key_files import KeyFiles, Keys
from sidecar.storage.s3.requests import make_client
from sidecar.storage.s3.s3fs_reader import s3fs_options
from sidecar.store_settings import S3Settings


class Secret:
    """A directory of keys, exchanged as the kubelet does it: by one rename of a symbolic link above the files."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._generation = 0
        self.write("key-1", "secret-1", "token-1")

    def write(self, key: str, secret: str, token: str) -> None:
        self._generation += 1
        version = self._directory / f"..{self._generation}"
        version.mkdir()
        for name, text in (("key", key), ("secret", secret), ("token", token)):
            (version / name).write_text(f"{text}\n")
        link = self._directory / "..new"
        link.symlink_to(version)
        link.replace(self._directory / "..data")

    def settings(self, **changes: Any) -> S3Settings:
        data = self._directory / "..data"
        files = {
            "access_key_id_file": data / "key",
            "secret_access_key_file": data / "secret",
            "session_token_file": data / "token",
        }
        return S3Settings.model_validate({**files, **changes})


@pytest.fixture
def secret(tmp_path: Path) -> Secret:
    return Secret(tmp_path)


def test_replaced_keys_are_used_from_the_next_question_on(secret: Secret) -> None:
    files = KeyFiles(secret.settings())
    assert files.keys() == Keys("key-1", "secret-1", "token-1")
    secret.write("key-2", "secret-2", "token-2")
    with structlog.testing.capture_logs() as logs:
        assert files.keys() == files.keys() == Keys("key-2", "secret-2", "token-2")
    assert logs == [{"event": "store_keys_changed", "log_level": "info"}]


def test_keys_of_two_generations_are_never_mixed(secret: Secret, monkeypatch: pytest.MonkeyPatch) -> None:
    files = KeyFiles(secret.settings())
    secret.write("key-2", "secret-2", "token-2")
    read = key_files.read_secret
    monkeypatch.setattr(
        key_files, "read_secret", replacing_after(read, lambda: secret.write("key-3", "secret-3", "token-3"))
    )
    assert files.keys() == Keys("key-1", "secret-1", "token-1")
    assert files.keys() == Keys("key-3", "secret-3", "token-3")


def replacing_after(read: Callable[[Path], str], replace: Callable[[], None]) -> Callable[[Path], str]:
    """Reads, and replaces all files after the first one was read."""
    left = [replace]

    def one(file: Path) -> str:
        found = read(file)
        while left:
            left.pop()()
        return found

    return one


def test_the_old_keys_go_on_while_a_file_cannot_be_read(secret: Secret, tmp_path: Path) -> None:
    files = KeyFiles(secret.settings())
    (tmp_path / "..data" / "secret").unlink()
    with structlog.testing.capture_logs() as logs:
        assert files.keys() == files.keys() == Keys("key-1", "secret-1", "token-1")
    (reported,) = logs
    assert (reported["event"], reported["log_level"]) == ("store_keys_not_read", "warning")
    assert "secret_access_key_file" in reported["error"]
    secret.write("key-2", "secret-2", "token-2")
    assert files.keys().secret_access_key == "secret-2"


def test_what_is_mended_without_another_write_is_read_again(secret: Secret, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its mode, or descriptors that are free again: the file itself stays as it was."""
    files = KeyFiles(secret.settings())
    read, failures = key_files.read_secret, [OSError(errno.EMFILE, "Too many open files")] * 2

    def failing(file: Path) -> str:
        if failures:
            raise failures.pop()
        return read(file)

    monkeypatch.setattr(key_files, "read_secret", failing)
    secret.write("key-2", "secret-2", "token-2")
    with structlog.testing.capture_logs() as logs:
        found = [files.keys().access_key_id for _ in range(3)]
    assert found == ["key-1", "key-1", "key-2"]
    assert [entry["event"] for entry in logs] == ["store_keys_not_read", "store_keys_changed"]


def test_a_pipe_is_refused_since_it_cannot_be_read_again(secret: Secret, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SettingsError, match="is a pipe, which cannot be read again"):
        KeyFiles(secret.settings(access_key_id_file=tmp_path / "pipe"))


@pytest.mark.parametrize("content", [b"", b" \n", b"\xff\xfe", b"x" * 70_000, None])
def test_a_start_without_usable_files_is_refused(content: bytes | None, secret: Secret, tmp_path: Path) -> None:
    file = tmp_path / "..data" / "key"
    file.unlink() if content is None else file.write_bytes(content)
    ends = "create the Secret with this key$" if content is None else ""
    with pytest.raises(SettingsError, match=rf"store\.s3\.access_key_id_file: .*/key .*{ends}"):
        make_client(secret.settings())


def test_a_key_may_be_given_with_its_secret_in_a_file(secret: Secret) -> None:
    files = KeyFiles(secret.settings(access_key_id="key-0", access_key_id_file=None, session_token_file=None))
    assert files.keys() == Keys("key-0", "secret-1", None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"secret_access_key": "x"}, "give secret_access_key or secret_access_key_file, not both"),
        ({"secret_access_key_file": None}, "given together"),
        ({"access_key_id_file": None, "secret_access_key_file": None}, "session_token needs"),
    ],
)
def test_incomplete_or_doubled_keys_are_refused(changes: dict[str, Any], message: str, secret: Secret) -> None:
    with pytest.raises(ValidationError, match=message):
        secret.settings(**changes)


def test_a_client_signs_each_request_with_the_keys_of_that_moment(secret: Secret) -> None:
    client = make_client(secret.settings(region="us-east-1", endpoint_url="http://127.0.0.1:1"))
    seen: list[tuple[str, str]] = []

    def answer(request: Any, **_: Any) -> None:
        credential = request.headers["Authorization"].decode().partition("Credential=")[2].partition("/")[0]
        seen.append((credential, request.headers["X-Amz-Security-Token"].decode()))
        raise InterruptedError

    client.meta.events.register("before-send.s3", answer)
    for generation in ("2", "3"):
        with pytest.raises(InterruptedError):
            client.head_object(Bucket="b", Key="k")
        secret.write(f"key-{generation}", f"secret-{generation}", f"token-{generation}")
    assert seen == [("key-1", "token-1"), ("key-2", "token-2")]
    client.close()


def test_readers_by_s3fs_have_the_same_keys(secret: Secret) -> None:
    options = s3fs_options(secret.settings())
    assert (options["key"], options["secret"], options["token"]) == ("key-1", "secret-1", "token-1")
    given = s3fs_options(S3Settings(access_key_id=SecretStr("key-0"), secret_access_key=SecretStr("secret-0")))
    assert (given["key"], given["secret"], given["token"]) == ("key-0", "secret-0", None)
