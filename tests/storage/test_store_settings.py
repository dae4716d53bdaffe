"""Settings of the store: what is refused, and what the client makes of them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Barrier, BrokenBarrierError
from typing import Any

import pytest
from botocore.utils import parse_timestamp
from pydantic import SecretStr, ValidationError

from sidecar.config.meanings import DescribedSchema
from sidecar.errors import ObjectExists, SettingsError
from sidecar.model import ObjectKey
from sidecar.ports import ObjectFacts
from sidecar.storage.s3.requests import make_client, time_of
from sidecar.storage.s3.store import S3Store
from sidecar.store_settings import S3Settings, StoreSettings
from tests.fakes.manual_clock import ManualClock
from tests.storage.s3_servers import new_bucket, s3_store


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"url": "s3://b"}, "bucket name"),
        ({"url": "s3:///prefix"}, "bucket name"),
        (
            {"url": "s3:/bucket/p"},
            "lacks the two slashes of a URL: s3://bucket/p. A directory of this name is ./s3:/bucket/p",
        ),
        (
            {"url": "s3//bucket/p"},
            "lacks the colon of a URL: s3://bucket/p. A directory of this name is ./s3//bucket/p",
        ),
        ({"url": "gs:bucket/p"}, "lacks the two slashes of a URL: gs://bucket/p"),
        ({"url": "s3://bucket/p?region=x"}, "settings of their own"),
        ({"url": "s3://bucket/p//x"}, "'p//x' is not a prefix"),
        ({"url": "s3://bucket/../x"}, "'../x' is not a prefix"),
        ({"url": "s3://key:secret@bucket/p"}, "must not carry credentials"),
        ({"url": ""}, "must name"),
        ({"url": "s3://bucket/p "}, "without spaces around it"),
        ({"url": " s3//bucket/p"}, "without spaces around it"),
        ({"url": "/a", "s3": {"endpoint_url": "store.example"}}, "http://"),
        ({"url": "/a", "s3": {"endpoint_url": "https://u:p@store.example"}}, "must not carry credentials"),
        ({"url": "/a", "s3": {"access_key_id": "x"}}, "given together"),
        ({"url": "/a", "s3": {"session_token": "x"}}, "session_token needs"),
        ({"url": "/a", "s3": {"kms_key_id": "x"}}, "aws:kms"),
        ({"url": "/a", "s3": {"ca_file": "/x.pem", "verify_tls": False}}, "no effect"),
        ({"url": "/a", "s3": {"part_bytes": 1024}}, "part_bytes"),
        ({"url": "/a", "s3": {"conditional_writes": False}}, "single_writer"),
        ({"url": "/a", "s3": {"checksum": "md5"}}, "crc32c"),
        ({"url": "/a", "urls": "/b"}, "urls"),
        ({"url": "/a", "s3": {"endpoint": "https://store.example"}}, "endpoint"),
        ({"url": "/a", "retry": {"attempt": 3}}, "attempt"),
    ],
)
def test_wrong_settings_are_refused_with_a_reason(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        StoreSettings.model_validate(settings)


@pytest.mark.parametrize(
    "url", ["s3:/key:topsecret@bucket/p", "gs:key:topsecret@bucket", "gs:/bucket/p?password=topsecret"]
)
def test_a_mistyped_url_shows_none_of_its_secrets(url: str) -> None:
    with pytest.raises(ValidationError) as raised:
        StoreSettings.model_validate({"url": url})
    (error,) = raised.value.errors()
    assert "lacks the two slashes of a URL" in error["msg"]
    assert "topsecret" not in error["msg"]


def test_secrets_do_not_show() -> None:
    settings = S3Settings(access_key_id=SecretStr("AKIAVISIBLE"), secret_access_key=SecretStr("topsecret"))
    assert "topsecret" not in repr(settings)
    assert "AKIAVISIBLE" not in settings.model_dump_json()


def test_every_setting_has_a_description() -> None:
    schema = StoreSettings.model_json_schema(schema_generator=DescribedSchema)
    sections = [schema, *(schema["$defs"][name] for name in ("S3Settings", "RetrySettings"))]
    for section in sections:
        assert [name for name, field in section["properties"].items() if not field.get("description")] == []


def test_the_client_does_what_the_settings_say() -> None:
    settings = S3Settings(
        endpoint_url="https://store.example:9000/",
        region="eu-central-1",
        access_key_id=SecretStr("key"),
        secret_access_key=SecretStr("secret"),
        connect_timeout_s=3,
        read_timeout_s=7,
    )
    client = make_client(settings)
    config = client.meta.config
    assert client.meta.endpoint_url == "https://store.example:9000"
    assert client.meta.region_name == "eu-central-1"
    assert (config.connect_timeout, config.read_timeout) == (3, 7)
    assert config.retries["total_max_attempts"] == 1
    assert config.request_checksum_calculation == "when_required"
    assert config.s3["payload_signing_enabled"] is False
    client.close()


def test_wrong_profiles_and_ca_files_are_settings_errors(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no-such-profile"):
        make_client(S3Settings(profile="no-such-profile"))
    for name, content, reason in (
        ("missing.pem", None, "cannot be read"),
        ("empty.pem", "", "contains no certificate"),
        ("damaged.pem", "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n", "contains no certificate"),
    ):
        if content is not None:
            (tmp_path / name).write_text(content)
        with pytest.raises(SettingsError, match=f"ca_file .*{name} {reason}"):
            make_client(S3Settings(ca_file=tmp_path / name))


def test_encryption_and_storage_class_go_with_every_new_object() -> None:
    settings = StoreSettings.model_validate(
        {
            "url": "s3://bucket",
            "s3": {
                "endpoint_url": "http://127.0.0.1:9",
                "server_side_encryption": "aws:kms",
                "kms_key_id": "alias/archive",
                "storage_class": "STANDARD_IA",
            },
        }
    )
    store = S3Store(settings, ManualClock())
    assert store._s3.creation() == {
        "ContentType": "application/octet-stream",
        "ServerSideEncryption": "aws:kms",
        "SSEKMSKeyId": "alias/archive",
        "StorageClass": "STANDARD_IA",
    }
    store.close()


def test_a_store_without_conditions_looks_before_it_puts(moto_endpoint: str) -> None:
    """Best effort, and only where the operator promised to be the only writer."""
    with s3_store(moto_endpoint, new_bucket(moto_endpoint), single_writer=True, conditional_writes=False) as store:
        store.put_if_absent(ObjectKey("a"), b"first")
        with pytest.raises(ObjectExists):
            store.put_if_absent(ObjectKey("a"), b"second")
        assert store.read(ObjectKey("a")) == b"first"


def test_two_threads_of_a_single_writer_do_not_both_create_a_key(
    moto_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The uploader and a compaction of one process commit side by side."""
    with s3_store(moto_endpoint, new_bucket(moto_endpoint), single_writer=True, conditional_writes=False) as store:
        head, both = store.head, Barrier(2)

        def slow(key: ObjectKey) -> ObjectFacts | None:
            found = head(key)
            with suppress(BrokenBarrierError):
                both.wait(0.5)  # The other one looks, too, before either puts.
            return found

        def created(body: bytes) -> bool:
            with suppress(ObjectExists):
                store.put_if_absent(ObjectKey("a"), body)
                return True
            return False

        monkeypatch.setattr(store, "head", slow)
        with ThreadPoolExecutor(2) as pool:
            assert sorted(pool.map(created, [b"first", b"second"])) == [False, True]


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-21T11:02:28.000Z",
        "2026-11-21T11:02:28Z",
        "Sat, 21 Nov 2026 11:02:28 GMT",
        "2026-11-21T12:02:28+01:00",
        1795258948,
    ],
)
def test_times_are_read_as_botocore_reads_them(text: str | int) -> None:
    assert time_of(text) == parse_timestamp(text)
    assert time_of(text).tzinfo is not None


def test_what_is_no_time_is_refused_as_by_botocore() -> None:
    with pytest.raises(ValueError, match="Invalid timestamp"):
        time_of("yesterday")
