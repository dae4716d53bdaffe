"""A put whose last bytes wait: what is signed is the whole body, and what is sent stops once on the way."""

from __future__ import annotations

import pytest

from sidecar.errors import ObjectExists
from sidecar.model import ObjectKey
from sidecar.storage.s3.request_body import HeldBody
from tests.storage.s3_servers import moto_server, new_bucket, s3_store

BODY = bytes(range(256)) * 64
KEY = ObjectKey("a/b")


def test_it_is_read_whole_until_it_is_held_and_in_two_pieces_from_then_on() -> None:
    calls: list[int] = []
    body = HeldBody(BODY, lambda: calls.append(body.tell()))
    assert (body.read(), body.read(10), calls) == (BODY, b"", [])
    assert (body.seek(0, 2), body.tell(), body.seek(0), len(body)) == (len(BODY), len(BODY), 0, len(BODY))
    body.begin_sending()
    pieces = list(iter(lambda: body.read(1 << 20), b""))
    assert [len(piece) for piece in pieces] == [len(BODY) - 1024, 1024]
    assert b"".join(pieces) == BODY
    assert calls == [len(BODY) - 1024]


def test_a_store_is_asked_before_the_last_bytes_leave_and_refuses_after_them() -> None:
    with moto_server() as endpoint_url, s3_store(endpoint_url, new_bucket(endpoint_url)) as store:
        calls: list[bool] = []
        store.put_if_absent_held(KEY, BODY, lambda: calls.append(store.head(KEY) is None))
        assert calls == [True]
        assert store.read(KEY) == BODY
        other = ObjectKey("a/c")
        with pytest.raises(ObjectExists):
            store.put_if_absent_held(other, BODY, lambda: store.put_if_absent(other, b"came between"))
        assert store.read(other) == b"came between"
