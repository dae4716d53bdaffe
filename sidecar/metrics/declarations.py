"""How metrics are declared: each with its help text, in a registry of one process."""

from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

from sidecar.clock import Clock

Metric = TypeVar("Metric", Counter, Gauge, Histogram)
PREFIX = "tiered_sidecar"
DURATION_BUCKETS_S = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 60, 120, 300, 600)


class Since:
    """A moment, `at_ms`, and how long ago it is when somebody asks: it moves while nothing else does."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.at_ms: int | None = None

    def seconds(self) -> float:
        """0 without a moment, and for one to come."""
        at_ms = self.at_ms
        return 0.0 if at_ms is None else max(0.0, (self._clock.now_ms() - at_ms) / 1000)

    def now(self) -> None:
        self.at_ms = self._clock.now_ms()

    def timestamp_s(self) -> float:
        """Unix time; 0 without a moment. After the clock was set back below it, the moment of this call."""
        if self.seconds() == 0.0 and self.at_ms is not None:
            self.now()
        return (self.at_ms or 0) / 1000


class Declarations:
    """A registry of its own, and what is declared in it.

    Labels have their values that are known beforehand: a series that begins at its first event hides that event from `rate()`.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        disable_created_metrics()  # type: ignore[no-untyped-call]  # A second series per counter, unused and undocumented.
        self.registry = CollectorRegistry(auto_describe=True)

    def counter(self, name: str, text: str, **labels: Iterable[str]) -> Counter:
        """Declare a counter; its name ends in `_total`."""
        return self._declared(Counter, name, text, labels)

    def gauge(self, name: str, text: str, **labels: Iterable[str]) -> Gauge:
        return self._declared(Gauge, name, text, labels)

    def age(self, name: str, text: str) -> Since:
        since = Since(self._clock)
        self.gauge(name, text).set_function(since.seconds)
        return since

    def timestamp(self, name: str, text: str) -> Since:
        """Declare a gauge of the Unix time of something; 0 before it has happened."""
        since = Since(self._clock)
        self.gauge(name, text).set_function(since.timestamp_s)
        return since

    def histogram(self, name: str, text: str) -> Histogram:
        return self._declared(Histogram, name, text, {}, buckets=DURATION_BUCKETS_S)

    def _declared(
        self, kind: type[Metric], name: str, text: str, labels: Mapping[str, Iterable[str]], **options: Any
    ) -> Metric:
        metric = kind(f"{PREFIX}_{name}", text, tuple(labels), registry=self.registry, **options)
        for values in product(*labels.values()) if labels else ():
            metric.labels(*values)
        return metric
