"""What a bucket's rules are taken for where the store does not show them; and what they have done to an object."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest
from botocore.exceptions import ClientError

from sidecar.errors import StoreUnavailable
from sidecar.model import ObjectKey
from sidecar.storage.retry import Retrier, StoreLiveness
from sidecar.storage.s3.bucket_rules import read_bucket_rules
from sidecar.storage.s3.errors import StoreRequest, translating
from sidecar.storage.s3.requests import S3Requests
from sidecar.store_settings import RetrySettings, S3Settings
from tests.fakes.manual_clock import ManualClock
from tests.fakes.seeded_randomness import SeededRandomness

LIFECYCLE = "GetBucketLifecycleConfiguration"


def bucket(lifecycle: Callable[..., Any]) -> S3Requests:
    """A bucket without rules, but for the answer to one question."""

    def repeat(operation: str, key: str, call: Callable[[], Any]) -> Any:
        with translating(StoreRequest(operation, key, "here")):
            return call()

    nothing = {"get_bucket_versioning": lambda **_: {}, "get_bucket_encryption": lambda **_: {}}
    client = SimpleNamespace(**nothing, get_bucket_lifecycle_configuration=lifecycle)
    return cast("S3Requests", SimpleNamespace(client=client, bucket="b", prefix="", repeat=repeat))


def refusing(code: str, message: str, status: int) -> Callable[..., Any]:
    def refuse(**_: Any) -> Any:
        answer = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}
        raise ClientError(answer, LIFECYCLE)  # type: ignore[arg-type]

    return refuse


def test_a_bucket_without_rules_is_no_question_left_open() -> None:
    found = read_bucket_rules(bucket(refusing("NoSuchLifecycleConfiguration", "there is none", 404)))
    assert (found.lifecycle, found.unknown) == ((), {})


def test_a_refusal_that_mentions_the_code_is_a_refusal() -> None:
    found = read_bucket_rules(bucket(refusing("AccessDenied", "not even NoSuchLifecycleConfiguration", 403)))
    assert list(found.unknown) == [LIFECYCLE]


def test_a_busy_store_is_asked_again() -> None:
    with pytest.raises(StoreUnavailable):
        read_bucket_rules(bucket(refusing("SlowDown", "slow down", 503)))


@pytest.mark.parametrize(
    ("answer", "frozen_in"),
    [
        ({}, ""),
        ({"StorageClass": "STANDARD_IA"}, ""),
        ({"StorageClass": "GLACIER"}, "GLACIER"),
        ({"StorageClass": "DEEP_ARCHIVE", "Restore": 'ongoing-request="true"'}, "DEEP_ARCHIVE"),
        (
            {
                "StorageClass": "GLACIER",
                "Restore": 'ongoing-request="false", expiry-date="Fri, 21 Dec 2040 00:00:00 GMT"',
            },
            "",
        ),
        ({"StorageClass": "INTELLIGENT_TIERING"}, ""),
        ({"StorageClass": "INTELLIGENT_TIERING", "ArchiveStatus": "ARCHIVE_ACCESS"}, "ARCHIVE_ACCESS"),
    ],
)
def test_an_object_that_must_be_restored_before_it_can_be_read_is_frozen(
    answer: dict[str, Any], frozen_in: str
) -> None:
    asked = {"ContentLength": 1, "LastModified": datetime(2026, 11, 21, tzinfo=UTC), **answer}
    client = cast("Any", SimpleNamespace(head_object=lambda **_: asked, meta=SimpleNamespace(endpoint_url="here")))
    clock = ManualClock(0)
    retrier = Retrier(RetrySettings(), clock, SeededRandomness(0))
    requests = S3Requests(client, "b", "", S3Settings(), retrier, StoreLiveness(clock, lambda _: None))
    assert requests.head(ObjectKey("k")).frozen_in == frozen_in
