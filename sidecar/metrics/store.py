"""What is asked of the object store, and how it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from sidecar.errors import SidecarError
from sidecar.metrics.declarations import Declarations
from sidecar.model import ObjectKey
from sidecar.ports import MIB, ObjectFacts, ObjectStore, UnfinishedUpload, UploadReceipt, UploadSource


class StoreMetrics:
    """Thread-safe."""

    def __init__(self, declare: Declarations) -> None:
        self._requests = declare.counter(
            "store_requests_total",
            "Calls to the object store; result is ok or the class of the error.",
            operation=(),
            result=(),
        )
        self._in_progress = declare.gauge("store_calls_in_progress", "Calls to the object store in progress.")
        self._limit = declare.gauge(
            "io_limit_bytes_per_second",
            "Configured limit of uploads (store.bandwidth_bytes_per_s) and of reads (store.read_bytes_per_s); 0: none.",
            direction=(),
        )
        self._io_bytes = declare.counter(
            "io_bytes_total",
            "Bytes that count towards the limit: sent to the store; read from it and from the broker's disks. "
            "Spark's workers are not included.",
            direction=(),
        )
        self._io_wait = declare.counter(
            "io_throttle_wait_seconds_total",
            "Seconds that uploads and reads waited for their limit; threads add up.",
            direction=(),
        )

    def watch(self, direction: str, bytes_per_s: Callable[[], int | None]) -> Callable[[int, float], None]:
        """Show a limit, and return what counts the bytes and seconds of waiting of each use. `direction`: upload or read."""
        moved, waited = self._io_bytes.labels(direction), self._io_wait.labels(direction)

        def note(size_bytes: int, wait_s: float) -> None:
            moved.inc(size_bytes)
            waited.inc(wait_s)

        self._limit.labels(direction).set_function(lambda: bytes_per_s() or 0)
        return note

    @contextmanager
    def call(self, operation: str) -> Iterator[None]:
        """Count a call to the store, which is made within the block."""
        result = "ok"
        try:
            with self._in_progress.track_inprogress():
                yield
        except SidecarError as error:
            result = type(error).__name__
            raise
        finally:
            self._requests.labels(operation, result).inc()

    def calls_in_progress(self) -> int:
        """How many calls are with the store now. Each has time limits of its own."""
        (shown,) = self._in_progress.collect()
        return int(shown.samples[0].value)


class MeteredStore:
    """An `ObjectStore` around another one. Listings and streams count once, when they end."""

    def __init__(self, store: ObjectStore, metrics: StoreMetrics) -> None:
        self._store = store
        self._counted = metrics.call
        self.url = store.url
        self.lists_by_page = store.lists_by_page

    def put_if_absent(self, key: ObjectKey, body: bytes) -> None:
        with self._counted("put_if_absent"):
            self._store.put_if_absent(key, body)

    def upload(self, key: ObjectKey, source: UploadSource) -> UploadReceipt:
        with self._counted("upload"):
            return self._store.upload(key, source)

    def read(self, key: ObjectKey, position: int = 0, size_bytes: int | None = None, *, whole: bool = False) -> bytes:
        with self._counted("read"):
            return self._store.read(key, position, size_bytes, whole=whole)

    def stream(self, key: ObjectKey, chunk_bytes: int = 4 * MIB, *, checked: bool = True) -> Iterator[bytes]:
        with self._counted("stream"):
            yield from self._store.stream(key, chunk_bytes, checked=checked)

    def head(self, key: ObjectKey) -> ObjectFacts | None:
        with self._counted("head"):
            return self._store.head(key)

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectFacts]:
        with self._counted("list"):
            yield from self._store.list(prefix, start_after)

    def list_folders(self, prefix: str) -> Iterator[str]:
        with self._counted("list_folders"):
            yield from self._store.list_folders(prefix)

    def delete(self, keys: Iterable[ObjectKey]) -> None:
        with self._counted("delete"):
            self._store.delete(keys)

    def unfinished_uploads(self, prefix: str) -> Iterator[UnfinishedUpload]:
        with self._counted("unfinished_uploads"):
            yield from self._store.unfinished_uploads(prefix)

    def abort_upload(self, upload: UnfinishedUpload) -> None:
        with self._counted("abort_upload"):
            self._store.abort_upload(upload)

    def close(self) -> None:
        self._store.close()
