"""The token: who is let in, and that nobody is where it cannot be read."""

from __future__ import annotations

import base64
from http import HTTPStatus
from pathlib import Path
from random import Random

import pytest
import structlog

from sidecar.errors import SettingsError
from sidecar.http.pages import Access, Answer

TOKEN = "5f0c6a1e9b7d4c3a8e2f"


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def status(refusal: Answer | None) -> HTTPStatus | None:
    return None if refusal is None else refusal.status


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    return path


def test_without_a_token_everybody_is_welcome() -> None:
    assert Access(None).refusal("") is None


@pytest.mark.parametrize("header", [f"Bearer {TOKEN}", f"bearer  {TOKEN}", basic("me", TOKEN), basic("", TOKEN)])
def test_the_token_opens_as_bearer_and_as_anybodys_password(token_file: Path, header: str) -> None:
    assert Access(token_file).refusal(header) is None


@pytest.mark.parametrize(
    "header",
    [
        "",
        TOKEN,
        "Bearer",
        f"Bearer {TOKEN[:-1]}",
        f"Bearer {TOKEN}x",
        f"Digest {TOKEN}",
        basic(TOKEN, ""),
        "Basic !!!",
        "Basic " + "A" * 10_001,
        "Bearer \u20ac",
        "Basic \u20ac",
    ],
)
def test_anything_else_does_not(token_file: Path, header: str) -> None:
    assert status(Access(token_file).refusal(header)) is HTTPStatus.UNAUTHORIZED


def test_a_new_token_holds_at_once_and_a_lost_one_lets_nobody_in(token_file: Path) -> None:
    access = Access(token_file)
    token_file.write_text("another-token-of-20-b")
    assert status(access.refusal(f"Bearer {TOKEN}")) is HTTPStatus.UNAUTHORIZED
    assert access.refusal("Bearer another-token-of-20-b") is None
    token_file.write_text("")
    assert status(access.refusal("Bearer ")) is HTTPStatus.SERVICE_UNAVAILABLE
    token_file.unlink()
    assert status(access.refusal(f"Bearer {TOKEN}")) is HTTPStatus.SERVICE_UNAVAILABLE


def test_a_token_that_cannot_be_read_is_logged_once_each_time_it_is_lost(token_file: Path) -> None:
    access = Access(token_file)
    with structlog.testing.capture_logs() as logs:
        for _ in range(2):
            token_file.unlink()
            for size_bytes in range(5):
                assert status(access.refusal("")) is HTTPStatus.SERVICE_UNAVAILABLE
                token_file.write_text("x" * size_bytes)
            token_file.write_text(TOKEN)
            assert status(access.refusal("")) is HTTPStatus.UNAUTHORIZED
    assert [entry["event"] for entry in logs] == ["http_token_not_read"] * 2


@pytest.mark.parametrize("content", [b"", b"short\n", Random(7).randbytes(5000)])
def test_what_is_no_token_is_refused_at_the_start(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(SettingsError, match=r"http\.token_file.*openssl rand"):
        Access(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"http\.token_file: cannot read .*nothing: No such file"):
        Access(tmp_path / "nothing")
