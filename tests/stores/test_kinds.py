"""Each server can do what its description in tests/servers/stores.py says: the table of docs/reference/object-stores.md is true."""

from __future__ import annotations

from contextlib import closing
from ipaddress import ip_address

import psutil
import pytest

from sidecar.clock import SystemClock
from sidecar.errors import StoreDenied, StoreMissing, StoreUnsafe, StoreUnsupported
from sidecar.model import ObjectKey
from sidecar.storage.probe import probe_store
from sidecar.storage.source import BytesSource
from tests.servers.s3_server import S3Server
from tests.servers.stores import StoreKind, chosen_stores
from tests.storage.s3_servers import new_bucket, s3_store

pytestmark = [
    pytest.mark.real,
    pytest.mark.parametrize(
        "kind",
        [
            # Of the others the gate has contract and races; `make store-matrix` has all of all.
            pytest.param(kind, id=kind.name, marks=() if kind.name == "versitygw" else pytest.mark.apart)
            for kind in chosen_stores()
        ],
        scope="module",
    ),
]

KEY = ObjectKey("cluster/topic/0/x/segments/00000000000000000000-aaaaaaaaaaaaaaaaaaaaaa.log")


def test_it_listens_on_loopback_alone(kind: StoreKind, server: S3Server) -> None:
    process = psutil.Process(server.process.pid)
    listening = {
        ip_address(connection.laddr.ip.removeprefix("::ffff:"))
        for one in [process, *process.children(recursive=True)]
        for connection in one.net_connections(kind="inet")
        if connection.status == psutil.CONN_LISTEN
    }
    assert ip_address("127.0.0.1") in listening
    assert all(address.is_loopback for address in listening), listening


def test_the_probe_accepts_or_refuses_it(kind: StoreKind, server: S3Server) -> None:
    with s3_store(server.endpoint, new_bucket(server.endpoint), clock=SystemClock()) as store:
        if kind.one_writer_wins:
            probe_store(store)
            return
        for _ in range(5):
            with pytest.raises(StoreUnsafe, match=r"puts of the same key at once [234] succeeded"):
                probe_store(store)


def test_it_reports_what_it_is_said_to_report(kind: StoreKind, server: S3Server) -> None:
    with s3_store(server.endpoint, new_bucket(server.endpoint)) as store:
        sent_crc32c = store.upload(KEY, BytesSource(bytes(11 << 20)))
        facts = store.head(KEY)
        assert facts is not None
        assert facts.crc32c == (sent_crc32c if kind.whole_crc else None)
        if not kind.lists_unfinished_uploads:
            with pytest.raises(StoreUnsupported, match="NotImplemented"):
                list(store.unfinished_uploads(""))


def test_wrong_keys_and_missing_buckets(kind: StoreKind, server: S3Server) -> None:
    bucket = new_bucket(server.endpoint)
    with s3_store(server.endpoint, bucket, secret_access_key="nottherightone") as store:
        if kind.checks_keys:
            with pytest.raises(StoreDenied, match="check the credentials"):
                store.put_if_absent(KEY, b"")
        else:
            store.put_if_absent(KEY, b"")
    with s3_store(server.endpoint, "no-such-bucket") as store:
        if kind.finds_missing_bucket:
            with pytest.raises(StoreMissing, match="create the bucket"):
                store.put_if_absent(KEY, b"")
        else:
            store.put_if_absent(KEY, b"")


def test_unfinished_uploads_are_listed_as_it_is_said(kind: StoreKind, server: S3Server) -> None:
    if not kind.lists_unfinished_uploads:
        return
    bucket = new_bucket(server.endpoint)
    with closing(server.client()) as client:
        client.create_multipart_upload(Bucket=bucket, Key=f"some/prefix/{KEY}")
    with s3_store(server.endpoint, bucket) as store:
        assert [upload.key for upload in store.unfinished_uploads(KEY)] == [KEY]
        found = [upload.key for upload in store.unfinished_uploads("cluster/")]
        assert found == ([KEY] if kind.lists_them_by_prefix else [])
