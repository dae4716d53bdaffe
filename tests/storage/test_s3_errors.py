"""The table of S3 answers."""

from __future__ import annotations

import pytest
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ParamValidationError,
    ReadTimeoutError,
    SSLError,
)

from sidecar.errors import (
    ObjectDamaged,
    ObjectExists,
    ObjectFrozen,
    ObjectMissing,
    OutcomeUnknown,
    SettingsError,
    SidecarError,
    StoreDenied,
    StoreError,
    StoreMissing,
    StoreUnavailable,
    StoreUnsupported,
)
from sidecar.storage.s3.errors import StoreRequest, failure, refusal, translating

PUT = StoreRequest("PutObject", "a/b", "https://store.example/bucket", creates=True)
GET = StoreRequest("GetObject", "a/b", "https://store.example/bucket")
LIST = StoreRequest("ListObjectsV2", "a/", "https://store.example/bucket")
URL = "https://store.example/bucket"


def answer(status: int, code: str) -> ClientError:
    return ClientError(
        {"Error": {"Code": code, "Message": "Words of the store."}, "ResponseMetadata": {"HTTPStatusCode": status}},
        "Operation",  # type: ignore[typeddict-item]
    )


@pytest.mark.parametrize(
    ("status", "code", "request_", "kind"),
    [
        (412, "PreconditionFailed", PUT, ObjectExists),
        (412, "412", PUT, ObjectExists),
        (409, "ConditionalRequestConflict", PUT, OutcomeUnknown),
        (409, "SomethingNew", PUT, OutcomeUnknown),
        (503, "SlowDown", PUT, StoreUnavailable),
        (503, "SomethingNew", PUT, StoreUnavailable),
        (429, "SomethingNew", PUT, StoreUnavailable),
        (400, "RequestTimeout", PUT, StoreUnavailable),
        (500, "InternalError", PUT, OutcomeUnknown),
        (500, "InternalError", GET, StoreUnavailable),
        (502, "", PUT, OutcomeUnknown),
        (504, "", GET, StoreUnavailable),
        (403, "InvalidObjectState", GET, ObjectFrozen),
        (507, "InsufficientStorage", PUT, OutcomeUnknown),
        (507, "", PUT, OutcomeUnknown),
        (200, "InternalError", PUT, OutcomeUnknown),
        (403, "AccessDenied", PUT, StoreDenied),
        (403, "SomethingNew", GET, StoreDenied),
        (401, "SomethingNew", GET, StoreDenied),
        (403, "InvalidAccessKeyId", GET, StoreDenied),
        (403, "SignatureDoesNotMatch", GET, StoreDenied),
        (400, "ExpiredToken", GET, StoreDenied),
        (403, "RequestTimeTooSkewed", GET, StoreDenied),
        (404, "NoSuchKey", GET, ObjectMissing),
        (404, "404", GET, ObjectMissing),
        (404, "404", LIST, StoreMissing),
        (404, "SomethingNew", GET, StoreError),
        (404, "XAdminUserNotFound", GET, StoreDenied),
        (404, "NoSuchBucket", GET, StoreMissing),
        (301, "PermanentRedirect", GET, SettingsError),
        (400, "AuthorizationHeaderMalformed", GET, SettingsError),
        (400, "BadDigest", PUT, ObjectDamaged),
        (400, "XAmzContentChecksumMismatch", PUT, ObjectDamaged),
        (501, "NotImplemented", PUT, StoreUnsupported),
        (405, "MethodNotAllowed", LIST, StoreUnsupported),
        (501, "", LIST, StoreUnsupported),
        (400, "InvalidArgument", PUT, StoreError),
    ],
)
def test_each_answer_has_one_meaning(status: int, code: str, request_: StoreRequest, kind: type[SidecarError]) -> None:
    error = refusal(answer(status, code), request_)
    assert type(error) is kind
    text = str(error)
    assert str(request_) in text
    assert "store.example" in text
    assert "Words of the store" in text
    assert str(status) in text
    assert len(text.rpartition(";")[2]) > 5
    assert "no response" not in text
    assert ("free space" in text) == (status == 507)


@pytest.mark.parametrize("code", ["AccessDenied", "SomethingNew"])
def test_a_denied_read_asks_for_no_right_to_write(code: str) -> None:
    assert "PutObject" in str(refusal(answer(403, code), PUT))
    for request in (GET, LIST):
        assert "Delete" not in str(refusal(answer(403, code), request))
        assert "s3:GetObject, ListBucket and" in str(refusal(answer(403, code), request))


@pytest.mark.parametrize(
    ("error", "of_a_put", "of_a_read"),
    [
        (EndpointConnectionError(endpoint_url=URL), StoreUnavailable, StoreUnavailable),
        (ConnectTimeoutError(endpoint_url=URL), StoreUnavailable, StoreUnavailable),
        (ReadTimeoutError(endpoint_url=URL), OutcomeUnknown, StoreUnavailable),
        (ConnectionClosedError(endpoint_url=URL), OutcomeUnknown, StoreUnavailable),
        (SSLError(endpoint_url=URL, error="EOF"), OutcomeUnknown, StoreUnavailable),
        (SSLError(endpoint_url=URL, error="[SSL: WRONG_VERSION_NUMBER] wrong"), StoreError, StoreError),
        (SSLError(endpoint_url=URL, error="CERTIFICATE_VERIFY_FAILED"), StoreDenied, StoreDenied),
        (SSLError(endpoint_url=URL, error="hostname 'a' doesn't match 'b.example'"), StoreDenied, StoreDenied),
        (SSLError(endpoint_url=URL, error="no appropriate subjectAltName fields were found"), StoreDenied, StoreDenied),
        (NoCredentialsError(), StoreDenied, StoreDenied),
        (ParamValidationError(report="bad bucket"), SettingsError, SettingsError),
    ],
)
def test_each_failure_has_one_meaning(
    error: BotoCoreError, of_a_put: type[SidecarError], of_a_read: type[SidecarError]
) -> None:
    assert type(failure(error, PUT)) is of_a_put
    assert type(failure(error, GET)) is of_a_read


@pytest.mark.parametrize("why", ["certificate has expired", "certificate is not yet valid"])
def test_a_certificate_that_is_not_valid_now_is_no_matter_of_its_authority(why: str) -> None:
    error = failure(SSLError(endpoint_url=URL, error=f"[SSL: CERTIFICATE_VERIFY_FAILED] {why}"), GET)
    assert type(error) is StoreDenied
    assert "clock" in str(error)
    assert "ca_file" not in str(error)


@pytest.mark.parametrize(
    "why",
    [
        "hostname 'a' doesn't match 'b.example'",
        "no appropriate subjectAltName fields were found",
        "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: Hostname mismatch, certificate is not valid for 'a'.",
    ],
    ids=["urllib3", "urllib3, an address", "s3fs"],
)
def test_a_certificate_for_another_name_is_no_matter_of_its_authority(why: str) -> None:
    error = failure(SSLError(endpoint_url=URL, error=why), GET)
    assert type(error) is StoreDenied
    assert "endpoint_url as its certificate does" in str(error)


def test_the_cause_is_kept() -> None:
    cause = answer(404, "NoSuchKey")
    with pytest.raises(ObjectMissing) as caught, translating(GET):
        raise cause
    assert caught.value.__cause__ is cause


@pytest.mark.parametrize(
    ("status", "code", "is_answered"),
    [
        (503, "SlowDown", True),
        (503, "", False),  # of something in front of the store
        (429, "TooManyRequests", True),
        (500, "InternalError", False),
        (502, "", False),
        (504, "", False),
        (408, "RequestTimeout", False),
    ],
)
def test_a_store_that_takes_no_more_for_now_has_answered(status: int, code: str, is_answered: bool) -> None:
    error = refusal(answer(status, code), GET)
    assert isinstance(error, StoreUnavailable)
    assert error.is_answered == is_answered
    assert not StoreUnavailable("another").is_answered


def test_advice_follows_the_text_of_botocore_without_doubled_punctuation() -> None:
    text = str(failure(ConnectionClosedError(endpoint_url="http://s3"), GET))
    assert 'endpoint URL: "http://s3"; check' in text
