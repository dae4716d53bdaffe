"""Imported by the process from which Spark forks its workers: each kernel is loaded once, not once per worker."""

from pathlib import Path
from tempfile import NamedTemporaryFile

from producer_state.replay import CompletedTransaction
from sidecar.compaction.last_batches import LastBatches
from sidecar.compaction.library import LIBRARY
from sidecar.compaction.rules import CompactionRules
from sidecar.compaction_strategy import Strategy
from sidecar.logformat.batches import scan_bytes
from sidecar.logformat.bodies.building import build_batch, build_marker
from sidecar.logformat.bodies.legacy import build_legacy_wrapper
from sidecar.logformat.bodies.record import Record
from sidecar.logformat.headers import Codec
from sidecar.rewriting.job import CompactionJob, Cutter, LogFile
from sidecar.rewriting.local_engine import LocalEngine
from sidecar.rewriting.run import required, rewritten, scanned


def _sample() -> tuple[bytes, CompletedTransaction]:
    """A batch of each kind that has kernels of its own; and the aborted transaction, whose marker is the last one."""

    def records(base_offset: int) -> list[Record]:
        return [Record(base_offset + at, 0, key, b"") for at, key in enumerate((b"k", b"%d" % base_offset))]

    # Each of these batches loses a record to the next one; the wrapper loses its only one.
    batches = [build_legacy_wrapper(records(0)[:1], codec=Codec.GZIP)]
    batches += [build_batch(records(2 * at), codec=codec) for at, codec in enumerate(reversed(Codec), start=1)]
    first = 2 * len(batches)
    batches += [
        build_batch(records(first), producer_id=1, producer_epoch=0, base_sequence=0, transactional=True),
        build_marker(first + 2, commit=False, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0),
    ]
    return b"".join(batches), CompletedTransaction(1, first, first + 2, first + 2, aborted=True)


def warm_up() -> None:
    """Call every kernel of a compaction once."""
    log, aborted = _sample()
    cutter = Cutter(len(log))
    for columns in scan_bytes(log):
        cutter.add(columns)
    pieces = (cutter.finish(),)
    with NamedTemporaryFile() as file:
        file.write(log)
        file.flush()
        source = LogFile(Path(file.name), 0, aborted.last_offset + 1, len(log), 0)
        for strategy in Strategy:
            rules = CompactionRules(0, strategy=strategy, header="v")
            job = CompactionJob((source,), pieces, (aborted,), rules, LastBatches(), bytes(16))
            with scanned([job], LocalEngine()) as run:
                required(rewritten(run, None)[0])


LIBRARY.calls_max = 0  # Each worker has numba's kernels from the first call on, which are loaded once, before the fork.
warm_up()
