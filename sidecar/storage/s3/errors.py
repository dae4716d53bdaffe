"""What an S3 answer means: one table from error codes to our errors, each with what to do about it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    HTTPClientError,
    IncompleteReadError,
    NoAuthTokenError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
    ProxyConnectionError,
    SSLError,
    TokenRetrievalError,
    UnauthorizedSSOTokenError,
)
from botocore.exceptions import (
    ConnectionError as BotoConnectionError,
)
from urllib3.exceptions import HTTPError

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
    StoreUnsafe,
    StoreUnsupported,
)

_KEYS = "check the credentials (environment, profile, service account, store.s3.access_key_id or its file)"
_RIGHTS = "allow s3:GetObject, PutObject, DeleteObject, AbortMultipartUpload, ListBucket and ListBucketMultipartUploads"
_READ_RIGHTS = "allow s3:GetObject, ListBucket and ListBucketMultipartUploads"
_CLOCK = "set this machine's clock"
_REGION = "set store.s3.region and store.s3.endpoint_url to those of the bucket"
_BUCKET = "create the bucket or correct the store's url"
_PLACE = "check store.s3.endpoint_url and the bucket's name"
_TRANSIT = (
    "bytes changed on the way to the store, or the store computes checksums in another way (store.s3.checksum: none)"
)
_UNSUPPORTED = "the store does not offer this function"
_FEATURE = f"{_UNSUPPORTED}; check store.s3.checksum, store.s3.storage_class and the encryption settings"
_BUSY = "the store is busy: if it stays so, lower store.s3.concurrency or check the store"
_FAILING = "the store failed: if it stays so, read the store's own log"
_NETWORK = "check store.s3.endpoint_url and the network between here and the store"
_NO_TLS = "the endpoint does not use TLS: begin store.s3.endpoint_url with http://, or give the TLS port"
_DATES = "renew the store's certificate; if it is valid, set this machine's clock"
_NAMES = "name the store in store.s3.endpoint_url as its certificate does"
_AUTHORITY = "set store.s3.ca_file to the authority that signed the store's certificate"
_LOST = "the outcome is unknown: no response arrived, and the request may have taken effect"
_LEFT_OPEN = "the outcome is unknown: the store reported a failure, and the request may have taken effect"
_FULL = "the store is full: free space in it"
_OTHER = "the store refused the request; see its documentation for the code"
_TAKEN = "the key exists already"
_GONE = "no such object"
_CONFLICT = "another request for the same key was under way"

NO_SUCH_KEY = ("NoSuchKey", "NotFound", "404")
"""HEAD answers have no body and thus no code."""
_THROTTLED: tuple[type[SidecarError], str] = (StoreUnavailable, _BUSY)
_CODES: dict[str, tuple[type[SidecarError], str]] = {
    **dict.fromkeys(("PreconditionFailed", "412"), (ObjectExists, _TAKEN)),
    **dict.fromkeys(("ConditionalRequestConflict", "OperationAborted"), (OutcomeUnknown, _CONFLICT)),
    **dict.fromkeys(NO_SUCH_KEY, (ObjectMissing, _GONE)),
    "NoSuchUpload": (ObjectMissing, "the multipart upload was already completed or aborted"),
    "NoSuchBucket": (StoreMissing, _BUCKET),
    "InvalidBucketName": (SettingsError, _BUCKET),
    **dict.fromkeys(
        ("PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"),
        (SettingsError, _REGION),
    ),
    **dict.fromkeys(("AccessDenied", "AllAccessDisabled"), (StoreDenied, _RIGHTS)),
    **dict.fromkeys(("InvalidAccessKeyId", "SignatureDoesNotMatch"), (StoreDenied, _KEYS)),
    **dict.fromkeys(("ExpiredToken", "InvalidToken", "TokenRefreshRequired"), (StoreDenied, _KEYS)),
    "KMS.DisabledException": (StoreDenied, "enable the key of store.s3.kms_key_id"),
    "KMS.NotFoundException": (SettingsError, "correct store.s3.kms_key_id"),
    "XAdminUserNotFound": (StoreDenied, _KEYS),  # versitygw, with status 404
    "RequestTimeTooSkewed": (StoreDenied, _CLOCK),
    **dict.fromkeys(("BadDigest", "InvalidDigest"), (ObjectDamaged, _TRANSIT)),
    **dict.fromkeys(("XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch"), (ObjectDamaged, _TRANSIT)),
    **dict.fromkeys(
        ("InvalidPart", "InvalidPartOrder"),
        (StoreUnsafe, "the store lost a part of a multipart upload, or cannot complete one"),
    ),
    **dict.fromkeys(("NotImplemented", "MethodNotAllowed"), (StoreUnsupported, _FEATURE)),
    "InvalidStorageClass": (SettingsError, "correct store.s3.storage_class"),
    "InvalidObjectState": (ObjectFrozen, ObjectFrozen.advice),
    "QuotaExceeded": (StoreDenied, "the store's quota is used up"),
    **dict.fromkeys(("RequestTimeout", "RequestTimeTooLong", "InternalError"), (StoreUnavailable, _FAILING)),
    **dict.fromkeys(
        ("SlowDown", "Throttling", "ThrottlingException", "TooManyRequests", "ServiceUnavailable"), _THROTTLED
    ),
}
_STATUSES: dict[int, tuple[type[SidecarError], str]] = {
    **dict.fromkeys((301, 307), (SettingsError, _REGION)),
    401: (StoreDenied, _KEYS),
    403: (StoreDenied, f"{_KEYS}, and {_RIGHTS}"),  # HEAD answers do not say which of the two
    408: (StoreUnavailable, _FAILING),
    409: (OutcomeUnknown, _CONFLICT),
    412: (ObjectExists, _TAKEN),
    429: _THROTTLED,
    507: (StoreUnavailable, _FULL),
    **dict.fromkeys((405, 501), (StoreUnsupported, _FEATURE)),
}
_NOT_ABOUT_AN_OBJECT = ("List", "PutObject", "CreateMultipartUpload", "DeleteObjects")
"""To these operations "not found" can only mean the bucket, or something that is no S3 store."""
_READING = ("List", "Get", "Head")
_WITHOUT_SETTINGS = ("List", "Delete", "Abort")
"""Requests that carry no checksum, storage class or encryption."""
_REFUSED_BEFORE_WORK = {400, 408, 429, 503}
"""With these statuses a put was not carried out; a 500, 502 or 504 leaves that open."""

_HANDSHAKES: dict[str, tuple[type[SidecarError], str]] = {
    **dict.fromkeys(("certificate has expired", "certificate is not yet valid"), (StoreDenied, _DATES)),
    **dict.fromkeys(("doesn't match", "no appropriate subjectAltName", "is not valid for"), (StoreDenied, _NAMES)),
    "CERTIFICATE_VERIFY_FAILED": (StoreDenied, _AUTHORITY),
    **dict.fromkeys(("WRONG_VERSION_NUMBER", "wrong version number"), (StoreError, _NO_TLS)),
    **dict.fromkeys(("RECORD_LAYER_FAILURE", "packet length too long"), (StoreError, _NO_TLS)),
}
"""By the words of OpenSSL and urllib3: the TLS handshake failed, so nothing was sent. The first that is found counts."""
_NOTHING_SENT = (EndpointConnectionError, ConnectTimeoutError, ProxyConnectionError)
_NO_CREDENTIALS = (
    NoCredentialsError,
    PartialCredentialsError,
    CredentialRetrievalError,
    TokenRetrievalError,
    NoAuthTokenError,
    UnauthorizedSSOTokenError,
)
_CONNECTION_LOST = (BotoConnectionError, HTTPClientError, IncompleteReadError, HTTPError)
"""botocore's, and urllib3's where reading a body lets them through."""


@dataclass(frozen=True, slots=True)
class StoreRequest:
    """One request, for messages. `creates`: a repetition could meet its own earlier success."""

    operation: str
    key: str
    where: str
    creates: bool = False

    def __str__(self) -> str:
        return f"{self.operation} {self.key or '/'} at {self.where}"


@contextmanager
def translating(request: StoreRequest) -> Iterator[None]:
    try:
        yield
    except ClientError as error:
        raise refusal(error, request) from error
    except (BotoCoreError, HTTPError) as error:
        raise failure(error, request) from error


def meaning_behind(error: BaseException, request: StoreRequest) -> SidecarError | None:
    """What the S3 client said, where another library raised an error of its own for it (s3fs does); None if it said nothing."""
    for cause in _causes(error):
        if isinstance(cause, ClientError):
            return refusal(cause, request)
        if isinstance(cause, BotoCoreError):  # others' errors wrap urllib3's, too
            return failure(cause, request)
    return None


def status_behind(error: BaseException) -> int:
    """The HTTP status of the answer that made another library raise this, 0 if there was none."""
    answers = (cause.response for cause in _causes(error) if isinstance(cause, ClientError))
    return next((int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)) for answer in answers), 0)


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def refusal(error: ClientError, request: StoreRequest) -> SidecarError:
    """An answer that says no."""
    answer = error.response.get("Error", {})
    code = str(answer.get("Code", ""))
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    of_class = (StoreUnavailable, _FAILING) if status >= 500 or status == 0 else (StoreError, _OTHER)
    meaning = _CODES.get(code) or _STATUSES.get(status) or of_class
    kind, advice = meaning
    if request.creates and kind is StoreUnavailable and status not in _REFUSED_BEFORE_WORK:
        kind, advice = OutcomeUnknown, f"{_LEFT_OPEN}; {_FULL}" if advice is _FULL else _LEFT_OPEN
    if kind is ObjectMissing and request.operation.startswith(_NOT_ABOUT_AN_OBJECT):
        kind, advice = StoreMissing, _PLACE
    if kind is StoreUnsupported and request.operation.startswith(_WITHOUT_SETTINGS):
        advice = _UNSUPPORTED
    if request.operation.startswith(_READING):
        advice = advice.replace(_RIGHTS, _READ_RIGHTS)
    message = str(answer.get("Message", "")).rstrip(".")
    found = f"{code} ({status})" if code and code != str(status) else f"status {status}"
    refused = kind(f"{request}: {found}{': ' + message if message else ''}; {advice}")
    if isinstance(refused, StoreUnavailable):
        refused.is_answered = meaning is _THROTTLED
    return refused


def failure(error: BotoCoreError | HTTPError, request: StoreRequest) -> SidecarError:
    """No answer, or no request."""
    text = str(error).rstrip(".")  # Advice follows.
    if isinstance(error, _NO_CREDENTIALS):
        return StoreDenied(f"{request}: {text}; {_KEYS}")
    if isinstance(error, ParamValidationError):
        return SettingsError(f"{request}: {text}")
    for words, (kind, advice) in _HANDSHAKES.items() if isinstance(error, SSLError) else ():
        if words in text:
            return kind(f"{request}: {text}; {advice}")
    if isinstance(error, _NOTHING_SENT):
        return StoreUnavailable(f"{request}: {text}; {_NETWORK}")
    if isinstance(error, _CONNECTION_LOST):
        if request.creates:
            return OutcomeUnknown(f"{request}: {text}; {_LOST}")
        return StoreUnavailable(f"{request}: {text}; {_NETWORK}")
    return StoreError(f"{request}: {text}")
