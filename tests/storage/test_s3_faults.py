"""The S3 adapter when the network or the store fails, against real servers behind a proxy that breaks requests."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import nullcontext
from math import inf
from pathlib import Path
from random import Random
from typing import Any

import pytest
from crc32c import crc32c

from sidecar.errors import (
    ObjectDamaged,
    ObjectExists,
    OutcomeUnknown,
    SegmentChanged,
    SidecarError,
    StoreDenied,
    StoreMissing,
    StoreUnavailable,
    StoreUnsafe,
)
from sidecar.model import ObjectKey
from sidecar.ports import MIB
from sidecar.storage.bandwidth import BandwidthLimit, IoBudget
from sidecar.storage.probe import probe_store
from sidecar.storage.s3.store import S3Store
from sidecar.storage.source import BytesSource, FileSource
from sidecar.store_settings import StoreSettings
from tests.fakes.manual_clock import ManualClock
from tests.servers.fault_proxy import IN_A_ROW_MAX, Break, Fault, FaultProxy, fault_proxy
from tests.storage.s3_servers import new_bucket, plain_client, s3_settings, s3_store, versitygw_server

KEY = ObjectKey("cluster/topic/0/x/segments/00000000000000000000-aaaaaaaaaaaaaaaaaaaaaa.log")
BODY = Random(7).randbytes(MIB + 7)
BIG = BODY * 11  # three parts of 5 MiB


@pytest.fixture
def proxy(s3_endpoint: str) -> Iterator[FaultProxy]:
    with fault_proxy(s3_endpoint) as running:
        yield running


@pytest.fixture
def store(request: pytest.FixtureRequest, s3_endpoint: str, proxy: FaultProxy) -> Iterator[S3Store]:
    cases = request.node.callspec.params.values()
    is_silent = any(Break.SILENCE in (case, getattr(case, "kind", None)) for case in cases)
    # Else it is waited for: what is slow on a busy machine is not broken.
    read_timeout_s = 1.5 if is_silent else 60.0
    with s3_store(proxy.endpoint_url, new_bucket(s3_endpoint), concurrency=2, read_timeout_s=read_timeout_s) as s3:
        yield s3


def test_throttling_is_waited_out(store: S3Store, proxy: FaultProxy) -> None:
    proxy.faults = [Fault("PUT", Break.STATUS, times=2), Fault("PUT", Break.STATUS, status=429, code="TooManyRequests")]
    store.put_if_absent(KEY, BODY)
    proxy.faults = [Fault("GET", Break.STATUS, times=3), Fault("HEAD", Break.STATUS, times=3)]
    assert store.read(KEY, 1, 3) == BODY[1:4]
    assert store.head(KEY) is not None
    assert proxy.count("PUT") == 4


def test_endless_throttling_is_reported_after_the_attempts_allowed(store: S3Store, proxy: FaultProxy) -> None:
    proxy.faults = [Fault("PUT", Break.STATUS, times=99)]
    with pytest.raises(StoreUnavailable, match=r"PutObject .*SlowDown \(503\)") as caught:
        store.put_if_absent(KEY, BODY)
    assert caught.value.retryable
    assert proxy.count("PUT") == 4


@pytest.mark.parametrize("kind", [Break.RESET_IN_BODY, Break.RESET_INSTEAD_OF_ANSWER, Break.SILENCE])
def test_a_create_only_put_with_a_lost_answer_is_not_repeated(store: S3Store, proxy: FaultProxy, kind: Break) -> None:
    proxy.faults = [Fault("PUT", kind)]
    with pytest.raises(OutcomeUnknown, match="may have taken effect"):
        store.put_if_absent(KEY, BODY)
    assert proxy.count("PUT") == 1
    written = store.head(KEY) is not None
    assert written == (kind is not Break.RESET_IN_BODY)


@pytest.mark.parametrize(("status", "code"), [(500, "InternalError"), (502, "BadGateway"), (504, "GatewayTimeout")])
def test_a_server_error_leaves_a_put_in_doubt(store: S3Store, proxy: FaultProxy, status: int, code: str) -> None:
    proxy.faults = [Fault("PUT", Break.STATUS_INSTEAD_OF_ANSWER, status=status, code=code)]
    with pytest.raises(OutcomeUnknown):
        store.put_if_absent(KEY, BODY)
    assert proxy.count("PUT") == 1


def test_a_conflicting_put_is_in_doubt(store: S3Store, proxy: FaultProxy) -> None:
    proxy.faults = [Fault("PUT", Break.STATUS, status=409, code="ConditionalRequestConflict")]
    with pytest.raises(OutcomeUnknown, match="another request for the same key"):
        store.put_if_absent(KEY, BODY)


def test_a_put_that_went_through_despite_a_refusal_is_in_doubt_not_lost(store: S3Store, proxy: FaultProxy) -> None:
    proxy.faults = [Fault("PUT", Break.STATUS_INSTEAD_OF_ANSWER, status=503)]
    with pytest.raises(OutcomeUnknown, match="an earlier attempt of this request"):
        store.put_if_absent(KEY, BODY)
    assert store.read(KEY) == BODY


def test_a_refusal_of_a_later_attempt_leaves_a_put_in_doubt(store: S3Store, proxy: FaultProxy) -> None:
    """The first attempt took hold, and was answered with 503. Before the second one the credentials expired."""
    proxy.faults = [
        Fault("PUT", Break.STATUS_INSTEAD_OF_ANSWER, status=503),
        Fault("PUT", Break.STATUS, status=403, code="ExpiredToken"),
    ]
    with pytest.raises(OutcomeUnknown, match=r"ExpiredToken \(403\).*an earlier attempt of this request"):
        store.put_if_absent(KEY, BODY)
    assert store.read(KEY) == BODY


@pytest.mark.parametrize("status", [400, 403])
def test_a_multipart_upload_is_complete_whatever_a_repeated_completion_answers(
    store: S3Store, proxy: FaultProxy, status: int
) -> None:
    proxy.faults = [
        Fault("POST", Break.STATUS_INSTEAD_OF_ANSWER, "uploadId", status=503),
        Fault("POST", Break.STATUS, "uploadId", status=status, code="InvalidPart" if status == 400 else "AccessDenied"),
    ]
    body = Random(7).randbytes(12 * MIB)
    sent_crc32c = store.upload(KEY, BytesSource(body))
    assert sent_crc32c == crc32c(body)
    assert store.read(KEY) == body


def test_a_key_taken_by_another_is_said_to_be_taken(store: S3Store, proxy: FaultProxy) -> None:
    store.put_if_absent(KEY, b"another's")
    with pytest.raises(ObjectExists, match="the key exists already"):
        store.put_if_absent(KEY, BODY)


PART_FAULTS = [
    Fault("PUT", Break.STATUS, "partNumber=2", times=2),
    Fault("PUT", Break.STATUS, "partNumber=2", status=500, code="InternalError"),
    Fault("PUT", Break.RESET_IN_BODY, "partNumber=2", times=2),
    Fault("PUT", Break.RESET_INSTEAD_OF_ANSWER, "partNumber=3"),
    Fault("PUT", Break.SILENCE, "partNumber=1"),
    Fault("POST", Break.STATUS, "uploads", times=2),
    Fault("POST", Break.STATUS, "uploadId", times=2),
    Fault("POST", Break.STATUS, "uploadId", status=500, code="InternalError"),
    Fault("POST", Break.RESET_INSTEAD_OF_ANSWER, "uploadId"),
    Fault("POST", Break.STATUS_INSTEAD_OF_ANSWER, "uploadId", status=503),
    Fault("POST", Break.SILENCE, "uploadId"),
]


@pytest.mark.parametrize("fault", PART_FAULTS, ids=lambda fault: f"{fault.kind.name}-{fault.path_part}-{fault.status}")
def test_a_multipart_upload_survives(store: S3Store, proxy: FaultProxy, fault: Fault) -> None:
    proxy.faults = [Fault(fault.method, fault.kind, fault.path_part, fault.times, fault.status, fault.code)]
    sent_crc32c = store.upload(KEY, BytesSource(BIG))
    assert proxy.faults[0].times == 0
    assert sent_crc32c == crc32c(BIG)
    assert b"".join(store.stream(KEY)) == BIG
    assert list(store.unfinished_uploads("")) == []


@pytest.mark.parametrize("kind", [Break.RESET_IN_BODY, Break.RESET_INSTEAD_OF_ANSWER, Break.SILENCE, Break.STATUS])
def test_a_small_upload_survives(store: S3Store, proxy: FaultProxy, kind: Break) -> None:
    proxy.faults = [Fault("PUT", kind)]
    assert store.upload(KEY, BytesSource(BODY)) == crc32c(BODY)
    assert store.read(KEY) == BODY


@pytest.mark.parametrize("part", ["partNumber=1", "partNumber=3"])
def test_an_upload_given_up_is_aborted(store: S3Store, proxy: FaultProxy, part: str) -> None:
    proxy.faults = [Fault("PUT", Break.STATUS, part, times=99)]
    with pytest.raises(StoreUnavailable, match="UploadPart"):
        store.upload(KEY, BytesSource(BIG))
    assert store.head(KEY) is None
    assert list(store.unfinished_uploads("")) == []


def test_an_upload_whose_abort_fails_too_is_listed_and_can_be_aborted(store: S3Store, proxy: FaultProxy) -> None:
    proxy.faults = [Fault("PUT", Break.STATUS, "partNumber", times=99), Fault("DELETE", Break.STATUS, times=99)]
    with pytest.raises(StoreUnavailable):
        store.upload(KEY, BytesSource(BIG))
    proxy.faults = []
    (unfinished,) = store.unfinished_uploads("cluster/topic/0/")
    assert unfinished.key == KEY
    assert list(store.unfinished_uploads("cluster/topic/1/")) == []
    store.abort_upload(unfinished)
    store.abort_upload(unfinished)
    assert list(store.unfinished_uploads("")) == []


def test_a_bucket_that_never_had_a_multipart_upload_has_none(store: S3Store, proxy: FaultProxy) -> None:
    proxy.faults = [Fault("GET", Break.STATUS, "uploads", status=404, code="NoSuchUpload")]
    assert list(store.unfinished_uploads("cluster/")) == []
    assert proxy.broken == 1


def test_a_source_that_shrinks_stops_the_upload(store: S3Store, tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(BIG[: 11 * MIB])
    with path.open("rb") as file, pytest.raises(SegmentChanged, match=r"ends at byte 11534336 .* 12000000 bytes"):
        store.upload(KEY, FileSource(file.fileno(), 12_000_000, path.name))
    assert store.head(KEY) is None
    assert list(store.unfinished_uploads("")) == []


@pytest.mark.parametrize("kind", [Break.CUT_ANSWER, Break.RESET_INSTEAD_OF_ANSWER, Break.STATUS, Break.SILENCE])
def test_an_interrupted_read_goes_on(store: S3Store, proxy: FaultProxy, kind: Break) -> None:
    store.upload(KEY, BytesSource(BIG))
    proxy.faults = [Fault("GET", kind, "segments", times=2)]
    assert b"".join(store.stream(KEY, chunk_bytes=MIB)) == BIG
    proxy.faults = [Fault("GET", kind, "segments", times=1)]
    assert store.read(KEY, 1000, MIB) == BIG[1000 : 1000 + MIB]


def test_reading_is_given_up_in_the_end(store: S3Store, proxy: FaultProxy) -> None:
    store.upload(KEY, BytesSource(BODY))
    proxy.faults = [Fault("GET", Break.RESET_INSTEAD_OF_ANSWER, times=99)]
    with pytest.raises(StoreUnavailable, match="GetObject"):
        store.read(KEY)


def test_bytes_changed_on_the_way_are_an_error_where_one_attempt_is_allowed(
    s3_endpoint: str, proxy: FaultProxy
) -> None:
    with s3_store(proxy.endpoint_url, new_bucket(s3_endpoint), attempts=1) as store:
        proxy.faults = [Fault("PUT", Break.STATUS, status=400, code="BadDigest")]
        with pytest.raises(ObjectDamaged, match="bytes changed"):
            store.upload(KEY, BytesSource(BODY))
        assert store.upload(KEY, BytesSource(BODY)) == crc32c(BODY)
        assert len(proxy.seen) == 2


@pytest.mark.real
def test_bytes_changed_on_the_way_are_refused_by_the_store_and_sent_again(versitygw_endpoint: str) -> None:
    bucket = new_bucket(versitygw_endpoint)
    with fault_proxy(versitygw_endpoint) as proxy, s3_store(proxy.endpoint_url, bucket) as store:
        proxy.faults = [Fault("PUT", Break.FLIP_BIT)]
        store.upload(KEY, BytesSource(BODY))
        proxy.faults = [Fault("PUT", Break.FLIP_BIT, "partNumber=2")]
        big = ObjectKey(f"{KEY}-big")
        store.upload(big, BytesSource(BIG))
        assert store.read(KEY) == BODY
        assert b"".join(store.stream(big)) == BIG
        proxy.faults = [Fault("PUT", Break.FLIP_BIT, times=99)]
        with pytest.raises(ObjectDamaged, match="bytes changed"):
            store.put_if_absent(ObjectKey("commit"), BODY)
        assert store.head(ObjectKey("commit")) is None


@pytest.mark.real
def test_bytes_changed_in_the_store_or_on_the_way_back_are_noticed(versitygw_endpoint: str) -> None:
    bucket = new_bucket(versitygw_endpoint)
    with fault_proxy(versitygw_endpoint) as proxy, s3_store(proxy.endpoint_url, bucket) as store:
        store.upload(KEY, BytesSource(BIG))
        facts = store.head(KEY)
        assert facts is not None
        assert facts.crc32c == crc32c(BIG)
        proxy.faults = [Fault("GET", Break.FLIP_BIT_OF_ANSWER, "segments")]
        with pytest.raises(ObjectDamaged, match="verify the archive"):
            list(store.stream(KEY))
        proxy.faults = [Fault("GET", Break.FLIP_BIT_OF_ANSWER, "segments")]
        assert b"".join(store.stream(KEY, checked=False)) != BIG
        proxy.faults = [Fault("GET", Break.FLIP_BIT_OF_ANSWER, "segments")]
        with pytest.raises(ObjectDamaged, match="verify the archive"):
            store.read(KEY, 0, len(BIG) + 1, whole=True)


@pytest.mark.real
def test_wrong_keys_wrong_bucket_and_nobody_there(versitygw_endpoint: str) -> None:
    bucket = new_bucket(versitygw_endpoint)
    with s3_store(versitygw_endpoint, bucket, secret_access_key="nottherightone") as store:
        with pytest.raises(StoreDenied, match=r"SignatureDoesNotMatch.*check the credentials") as caught:
            store.put_if_absent(KEY, BODY)
        assert "nottherightone" not in str(caught.value)
    with (
        s3_store(versitygw_endpoint, bucket, access_key_id="nobody") as store,
        pytest.raises(StoreDenied, match="check the credentials"),
    ):
        list(store.list(""))
    with s3_store(versitygw_endpoint, "no-such-bucket") as store:
        for use in (
            lambda: store.put_if_absent(KEY, BODY),
            lambda: list(store.list("")),
            lambda: store.upload(KEY, BytesSource(BIG)),
        ):
            with pytest.raises(StoreMissing, match=r"NoSuchBucket.*create the bucket"):
                use()
    with (
        s3_store("http://127.0.0.1:9", bucket, attempts=2) as store,
        pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:9.*check store.s3.endpoint_url"),
    ):
        store.put_if_absent(KEY, BODY)


@pytest.mark.real
def test_a_store_without_conditional_puts_is_refused(tmp_path: Path) -> None:
    with versitygw_server(tmp_path, nometa=True) as endpoint_url:
        bucket = new_bucket(endpoint_url)
        with s3_store(endpoint_url, bucket) as store:
            with pytest.raises(StoreUnsafe, match=r"create-only put .*multipart upload"):
                probe_store(store)
            # Multipart uploads fail there as well, which no promise makes good.
            with pytest.raises(StoreUnsafe, match="not fit for an archive: multipart upload"):
                probe_store(store, single_writer=True)


@pytest.mark.real
def test_a_store_whose_conditional_puts_race_is_refused(tmp_path: Path) -> None:
    with versitygw_server(tmp_path, racy=True) as endpoint_url:
        bucket = new_bucket(endpoint_url)
        with s3_store(endpoint_url, bucket) as store:
            with pytest.raises(StoreUnsafe, match=r"of 4 puts of the same key at once [234] succeeded"):
                probe_store(store)
            probe_store(store, single_writer=True)


@pytest.mark.real
def test_memory_does_not_grow_with_the_object(versitygw_endpoint: str, tmp_path: Path) -> None:
    path = tmp_path / "segment.log"
    size_bytes = 96 * MIB
    with path.open("wb") as file:
        file.truncate(size_bytes)
    with s3_store(versitygw_endpoint, new_bucket(versitygw_endpoint), concurrency=3) as store, path.open("rb") as file:
        tracemalloc.start()
        try:
            store.upload(KEY, FileSource(file.fileno(), size_bytes))
            peak_bytes = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak_bytes < (3 + 1) * 5 * MIB


@pytest.mark.real
def test_a_whole_upload_takes_the_fewest_requests(versitygw_endpoint: str) -> None:
    with (
        fault_proxy(versitygw_endpoint) as proxy,
        s3_store(proxy.endpoint_url, new_bucket(versitygw_endpoint)) as store,
    ):
        store.upload(KEY, BytesSource(BODY))
        assert len(proxy.seen) == 1
        proxy.seen.clear()
        store.upload(ObjectKey("big"), BytesSource(BIG))
        assert len(proxy.seen) == 5


@pytest.mark.real
def test_a_store_without_checksum_headers_can_be_used(versitygw_endpoint: str) -> None:
    bucket = new_bucket(versitygw_endpoint)
    with s3_store(versitygw_endpoint, bucket, checksum="none") as store:
        assert store.upload(KEY, BytesSource(BIG)) == crc32c(BIG)
        store.put_if_absent(ObjectKey("small"), BODY)
        assert b"".join(store.stream(KEY)) == BIG
        client = plain_client(versitygw_endpoint)
        head = client.head_object(Bucket=bucket, Key="some/prefix/small", ChecksumMode="ENABLED")
        client.close()
        assert "ChecksumCRC32C" not in head
        store.delete([KEY, ObjectKey("small")])
        assert list(store.list("")) == []


@pytest.mark.real
def test_a_store_that_knows_only_checksums_of_checksums_is_compared_all_the_same(
    versitygw_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with s3_store(versitygw_endpoint, new_bucket(versitygw_endpoint)) as store:
        # What such a store would do with the header: take no notice of it.
        store._s3.client.meta.events.register_first(
            "before-parameter-build.s3.CreateMultipartUpload", lambda params, **_: params.pop("ChecksumType")
        )
        store.upload(KEY, BytesSource(BIG))
        facts = store.head(KEY)
        assert facts is not None
        assert (facts.size_bytes, facts.crc32c) == (len(BIG), None)
        assert b"".join(store.stream(KEY)) == BIG
        monkeypatch.setattr("sidecar.storage.s3.upload.composite_text", lambda crcs: f"AAAAAA==-{len(crcs)}")
        with pytest.raises(ObjectDamaged, match="but 00000000-3 was sent"):
            store.upload(ObjectKey("other"), BytesSource(BIG))


def test_the_bandwidth_limit_holds_for_parts_and_small_objects(s3_endpoint: str) -> None:
    clock = ManualClock()
    settings = StoreSettings(url=f"s3://{new_bucket(s3_endpoint)}", s3=s3_settings(s3_endpoint))
    store = S3Store(settings, clock, budget=IoBudget(BandwidthLimit(MIB, clock), BandwidthLimit(None, clock)))
    store.upload(KEY, BytesSource(BIG))
    store.upload(ObjectKey("small"), BytesSource(BODY))
    assert store.read(ObjectKey("small")) == BODY
    assert clock.monotonic_s() >= 11.9
    store.close()


def test_many_unfinished_uploads_are_listed_page_by_page(moto_endpoint: str) -> None:
    bucket = new_bucket(moto_endpoint)
    client = plain_client(moto_endpoint)
    for number in range(5):
        client.create_multipart_upload(Bucket=bucket, Key=f"some/prefix/topic/{number}")
    client.close()
    with s3_store(moto_endpoint, bucket) as store:
        store._s3.client.meta.events.register_first(
            "before-parameter-build.s3.ListMultipartUploads", lambda params, **_: params.update(MaxUploads=2)
        )
        found = list(store.unfinished_uploads("topic/"))
        assert [upload.key for upload in found] == [f"topic/{number}" for number in range(5)]


@pytest.mark.parametrize(("code", "requests", "kind"), [("InternalError", 3, None), ("AccessDenied", 1, StoreDenied)])
def test_objects_that_one_delete_request_left_are_deleted_by_the_next(
    moto_endpoint: str, code: str, requests: int, kind: type[SidecarError] | None
) -> None:
    keys = [ObjectKey(f"{KEY}.{number}") for number in range(3)]
    with s3_store(moto_endpoint, new_bucket(moto_endpoint)) as store:
        for key in keys:
            store.put_if_absent(key, b"x")
        delete, asked = store._s3.client.delete_objects, list[int]()

        def one_at_a_time(**arguments: Any) -> dict[str, Any]:
            first, *left = arguments["Delete"]["Objects"]
            asked.append(1 + len(left))
            answer = delete(**{**arguments, "Delete": {"Objects": [first]}})
            return {**answer, "Errors": [{**name, "Code": code, "Message": "words of the store"} for name in left]}

        store._s3.client.delete_objects = one_at_a_time  # type: ignore[method-assign, assignment]
        with (
            pytest.raises(kind, match=r"2 objects not deleted, first .*1: words of the store.*s3:")
            if kind
            else nullcontext()
        ):
            store.delete(keys)
        assert asked == [3, 2, 1][:requests]
        assert [found.key for found in store.list("")] == ([] if kind is None else keys[1:])


@pytest.mark.parametrize("name", [{}, {"Key": ""}, {"Key": "another"}])
def test_only_what_was_to_be_deleted_is_asked_for_again_whatever_a_store_names(
    moto_endpoint: str, name: dict[str, str]
) -> None:
    keys = [ObjectKey(f"{KEY}.{number}") for number in range(3)]
    bucket = new_bucket(moto_endpoint)
    with s3_store(moto_endpoint, bucket) as store:
        for key in keys:
            store.put_if_absent(key, b"x")
        store._s3.client.put_object(Bucket=bucket, Key="another")
        delete, asked = store._s3.client.delete_objects, list[int]()

        def refuses_once(**arguments: Any) -> dict[str, Any]:
            asked.append(len(arguments["Delete"]["Objects"]))
            if len(asked) > 1:
                return dict(delete(**arguments))
            named = arguments["Delete"]["Objects"][0]
            error = {"Code": "InternalError", "Message": "words of the store"}
            return {"Errors": [{**named, **error}, {**name, **error}], "ResponseMetadata": {"HTTPStatusCode": 200}}

        store._s3.client.delete_objects = refuses_once  # type: ignore[method-assign, assignment]
        store.delete(keys)
        assert asked == [3, 3]
        assert not list(store.list(""))
        store._s3.client.head_object(Bucket=bucket, Key="another")


@pytest.mark.parametrize("code", ["NoSuchKey", "NotFound", "404"])
def test_objects_that_a_store_does_not_find_count_as_deleted(moto_endpoint: str, code: str) -> None:
    """As each time that gc tries a batch."""
    with s3_store(moto_endpoint, new_bucket(moto_endpoint)) as store:

        def finds_none(**arguments: Any) -> dict[str, Any]:
            return {"Errors": [{**name, "Code": code} for name in arguments["Delete"]["Objects"]]}

        store._s3.client.delete_objects = finds_none  # type: ignore[method-assign, assignment]
        store.delete([ObjectKey("a"), ObjectKey("b")])


@pytest.mark.parametrize("says_range", [True, False])
def test_a_range_that_is_answered_with_more_is_not_read(moto_endpoint: str, says_range: bool) -> None:
    with s3_store(moto_endpoint, new_bucket(moto_endpoint)) as store:
        store.put_if_absent(KEY, BODY)
        client = store._s3.client
        get, reads = client.get_object, []

        def whole(**arguments: object) -> dict[str, object]:
            arguments.pop("Range")
            answer = get(**arguments)
            answer["Body"].read = reads.append
            return {**answer, "ContentRange": "bytes 0-9/99"} if says_range else {**answer}

        client.get_object = whole
        with pytest.raises(StoreUnsafe, match="ignores range"):
            store.read(KEY, 0, 10)
        assert reads == []


def test_a_fault_of_a_share_lets_the_same_request_pass_in_the_end() -> None:
    proxy = FaultProxy(faults=[Fault("GET", Break.STATUS, times=inf, share=0.999999)])
    struck = [proxy.next_fault("GET", path) is not None for _ in range(2 * (IN_A_ROW_MAX + 1)) for path in ("/a", "/b")]
    in_turn = ([True] * IN_A_ROW_MAX + [False]) * 2
    assert (struck[::2], struck[1::2]) == (in_turn, in_turn)
