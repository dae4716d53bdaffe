"""No key leads out of a store's root."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sidecar.clock import SystemClock
from sidecar.errors import StoreError
from sidecar.model import ObjectKey
from sidecar.ports import ObjectStore
from sidecar.storage.object_keys import check_key
from sidecar.storage.opening import open_store
from sidecar.storage.s3.store import S3Store
from sidecar.storage.source import BytesSource
from sidecar.store_settings import StoreSettings
from tests.storage.files_in_memory import FilesInMemory
from tests.storage.s3_servers import s3_store

BAD = ["../outside", "a/../../outside", "/absolute", "a//b", "", "a/", "a/./b", "nul\0", "x" * 1025]


@pytest.fixture(params=["directory", "memory-fsspec", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ObjectStore]:
    if request.param == "directory":
        yield open_store(StoreSettings(url=str(tmp_path / "archive")))
    elif request.param == "memory-fsspec":
        yield FilesInMemory()
    else:
        with s3_store("http://127.0.0.1:9", "bucket") as s3:
            yield s3


@pytest.mark.parametrize("name", BAD)
def test_keys_that_could_leave_the_root_are_refused(store: ObjectStore, name: str, tmp_path: Path) -> None:
    key = ObjectKey(name)
    for use in (
        lambda: store.put_if_absent(key, b""),
        lambda: store.upload(key, BytesSource(b"")),
        lambda: store.read(key),
        lambda: store.head(key),
        lambda: store.delete([key]),
    ):
        with pytest.raises(StoreError, match="object key"):
            use()
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("name", ["a", "..a/b..", "a/...", "Ünïcode/x", "0123456789/_probe"])
def test_plain_names_are_keys(name: str) -> None:
    assert check_key(name) == name


@pytest.mark.parametrize(("path", "beginning"), [("/deep/prefix/", "deep/prefix/"), ("", ""), ("/", "")])
def test_a_prefix_goes_both_ways(path: str, beginning: str) -> None:
    settings = StoreSettings(url=f"s3://bucket{path}")
    with closing(S3Store(settings, SystemClock())) as store:
        requests = store._s3
        assert requests.address(ObjectKey("a/b")) == {"Bucket": "bucket", "Key": f"{beginning}a/b"}
        assert requests.key(f"{beginning}a/b") == "a/b"
        assert store.url == f"s3://bucket/{beginning}".rstrip("/")
