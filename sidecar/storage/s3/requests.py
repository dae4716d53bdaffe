"""One S3 bucket as requests: names, common headers, retries and error translation in one place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from sidecar.model import ObjectKey
from sidecar.ports import ObjectFacts
from sidecar.storage.answers import StoreAnswers
from sidecar.storage.checksums import from_text, to_text
from sidecar.storage.key_prefix import KeyPrefix
from sidecar.storage.retry import Retrier
from sidecar.storage.s3.errors import StoreRequest, translating
from sidecar.storage.store_time import milliseconds_of
from sidecar.store_settings import ChecksumMode, S3Settings

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

Answer = TypeVar("Answer")


class S3Requests:
    """What all parts of the S3 adapter share."""

    def __init__(
        self,
        client: S3Client,
        bucket: str,
        prefix: KeyPrefix,
        settings: S3Settings,
        retrier: Retrier,
        answers: StoreAnswers,
    ) -> None:
        self.client = client
        self.bucket = bucket
        self.prefix = prefix
        self.settings = settings
        self.retrier = retrier
        self._answers = answers
        self.checksums = settings.checksum is ChecksumMode.CRC32C
        self._where = f"{client.meta.endpoint_url}/{bucket}"

    def send(self, operation: str, key: str, call: Callable[[], Answer], *, creates: bool = False) -> Answer:
        """One attempt. Raises our errors."""
        with self._answers.asked(), translating(StoreRequest(operation, key, self._where, creates)):
            return call()

    def repeat(self, operation: str, key: str, call: Callable[[], Answer]) -> Answer:
        """Attempts until one succeeds or fails for good."""
        return self.retrier.run(lambda: self.send(operation, key, call))

    def address(self, key: ObjectKey) -> dict[str, Any]:
        return {"Bucket": self.bucket, "Key": self.prefix.name(key)}

    def creation(self) -> dict[str, Any]:
        """Parameters of every new object: encryption and storage class."""
        settings = self.settings
        parameters: dict[str, Any] = {"ContentType": "application/octet-stream"}
        if settings.server_side_encryption is not None:
            parameters["ServerSideEncryption"] = settings.server_side_encryption.value
        if settings.kms_key_id is not None:
            parameters["SSEKMSKeyId"] = settings.kms_key_id
        if settings.storage_class is not None:
            parameters["StorageClass"] = settings.storage_class
        return parameters

    def create_only(self) -> dict[str, Any]:
        """The condition that the key is free, where the store is trusted with it."""
        return {"IfNoneMatch": "*"} if self.settings.conditional_writes else {}

    def checksum(self, crc32c: int) -> dict[str, Any]:
        """The checksum header. With it present botocore computes none of its own (httpchecksum.resolve_request…)."""
        return {"ChecksumCRC32C": to_text(crc32c)} if self.checksums else {}

    def checksum_mode(self) -> dict[str, Any]:
        return {"ChecksumMode": "ENABLED"} if self.checksums else {}

    def head(self, key: ObjectKey) -> ObjectFacts:
        """Facts of an object. Raises ObjectMissing."""
        answer = self.repeat(
            "HeadObject", key, lambda: self.client.head_object(**self.address(key), **self.checksum_mode())
        )
        return ObjectFacts(
            key=key,
            size_bytes=answer["ContentLength"],
            modified_ms=milliseconds_of(answer["LastModified"]),
            crc32c=stored_crc32c(answer),
        )


def stored_crc32c(answer: Mapping[str, Any]) -> int | None:
    """The checksum of the whole object that an answer reports, None if it reports none, or one of parts."""
    is_whole = answer.get("ChecksumType", "FULL_OBJECT") != "COMPOSITE"
    return from_text(answer.get("ChecksumCRC32C")) if is_whole else None
