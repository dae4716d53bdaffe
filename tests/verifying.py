"""The verification of one lineage, as `verify_archive` does it for all of them."""

from __future__ import annotations

from sidecar.archive.keys import parse_root
from sidecar.clock import Clock
from sidecar.model import ObjectKey
from sidecar.ports import ObjectStore
from sidecar.verify import verify
from sidecar.verify.segments import check_in_threads
from sidecar.verify.verify import PartitionVerification


def verify_partition(
    store: ObjectStore, root: ObjectKey, clock: Clock, *, deep: bool = False, workers: int = verify.WORKERS
) -> PartitionVerification:
    """Raises StoreError where the store itself fails."""
    planned = verify._plan(store, parse_root(root), clock, deep=deep)
    if isinstance(planned, PartitionVerification):
        return planned
    checked = list(check_in_threads(store, workers, planned.checks, deep=deep))
    return verify._combined(planned, checked, verify._unnamed(store, planned.state, clock.now_ms()))
