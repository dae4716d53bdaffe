"""How metrics are declared: each with its help text, in a registry of one process, and in a list for the docs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

from sidecar.clock import Clock

PREFIX = "tiered_sidecar"
DURATION_BUCKETS_S = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 60, 120, 300, 600)


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """A metric as documented. Counters get `_total` from the exposition, histograms `_bucket`, `_sum` and `_count`."""

    name: str
    kind: str
    labels: tuple[str, ...]
    text: str


class Since:
    """A moment, `at_ms`, and how long ago it is when somebody asks: it moves while nothing else does."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.at_ms: int | None = None

    def seconds(self) -> float:
        """0 without a moment, and for one to come."""
        at_ms = self.at_ms
        return 0.0 if at_ms is None else max(0.0, (self._clock.now_ms() - at_ms) / 1000)


class Declarations:
    """A registry of its own, and the families declared in it, in order."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # A second series per counter, unused and undocumented.
        self.registry = CollectorRegistry(auto_describe=True)
        self.families: list[MetricFamily] = []

    def counter(self, name: str, text: str, *labels: str) -> Counter:
        """Declare a counter; its name ends in `_total`."""
        return Counter(self._declared(name, "counter", text, labels), text, labels, registry=self.registry)

    def gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(self._declared(name, "gauge", text, labels), text, labels, registry=self.registry)

    def histogram(self, name: str, text: str, *labels: str) -> Histogram:
        """Declare a histogram of seconds."""
        full_name = self._declared(name, "histogram", text, labels)
        return Histogram(full_name, text, labels, registry=self.registry, buckets=DURATION_BUCKETS_S)

    def _declared(self, name: str, kind: str, text: str, labels: Iterable[str]) -> str:
        full_name = f"{PREFIX}_{name}"
        self.families.append(MetricFamily(full_name, kind, tuple(labels), text))
        return full_name
