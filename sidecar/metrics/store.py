"""What is asked of the object store, and how it ends."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from sidecar.errors import SidecarError
from sidecar.metrics.declarations import Declarations
from sidecar.ports import ObjectStore

Given = ParamSpec("Given")
Answer = TypeVar("Answer")


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

    def counted(self, operation: str, function: Callable[Given, Answer]) -> Callable[Given, Answer]:
        def counting(*args: Given.args, **kwargs: Given.kwargs) -> Answer:
            with self.call(operation):
                return function(*args, **kwargs)

        return counting

    def counted_to_end(
        self, operation: str, function: Callable[Given, Iterator[Answer]]
    ) -> Callable[Given, Iterator[Answer]]:
        def counting(*args: Given.args, **kwargs: Given.kwargs) -> Iterator[Answer]:
            with self.call(operation):
                yield from function(*args, **kwargs)

        return counting

    def calls_in_progress(self) -> int:
        """How many calls are with the store now. Each has time limits of its own."""
        (shown,) = self._in_progress.collect()
        return int(shown.samples[0].value)


class MeteredStore:
    """An `ObjectStore` around another one. Listings and streams count once, when they end."""

    def __init__(self, store: ObjectStore, metrics: StoreMetrics) -> None:
        self.url, self.lists_by_page, self.close = store.url, store.lists_by_page, store.close
        self.put_if_absent = metrics.counted("put_if_absent", store.put_if_absent)
        self.upload = metrics.counted("upload", store.upload)
        self.read = metrics.counted("read", store.read)
        self.stream = metrics.counted_to_end("stream", store.stream)
        self.head = metrics.counted("head", store.head)
        self.list = metrics.counted_to_end("list", store.list)
        self.list_folders = metrics.counted_to_end("list_folders", store.list_folders)
        self.delete = metrics.counted("delete", store.delete)
        self.unfinished_uploads = metrics.counted_to_end("unfinished_uploads", store.unfinished_uploads)
        self.abort_upload = metrics.counted("abort_upload", store.abort_upload)
