"""What the sidecar measures of itself, for Prometheus. One injected object, no process-wide registry.

No series has a partition or topic label: a broker with ten thousand partitions must not cost ten thousand series.
"""

from sidecar.metrics.registry import Metrics
from sidecar.metrics.store import MeteredStore

__all__ = ["MeteredStore", "Metrics"]
