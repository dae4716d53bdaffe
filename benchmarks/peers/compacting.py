"""Compaction: of a partition directory, of an archive, and by the broker's own LogCleaner."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable

from benchmarks.compaction_input import TOPIC, Shape, write_partition
from benchmarks.hosting import cleaning_broker
from benchmarks.measuring import Run, Store, measured, measured_server
from benchmarks.peers.bench import OURS, Bench, Promise, Road
from benchmarks.peers.copiers import boto3_command
from benchmarks.product_runs import PROGRAM, process_cpu_s
from benchmarks.segments import MIB, write_checkpoints

_FLOOR = "boto3 download and upload"


def compact_road(bench: Bench) -> Road:
    """1.5 GiB with 13 million records of one million keys, or little."""
    shape = Shape(20_000, 1000, segment_bytes=MIB) if bench.tiny else Shape(13_000_000, 1_000_000)
    log_dir, out = bench.scratch / "uncompacted", bench.scratch / "compacted"
    partition = write_partition(log_dir / f"{TOPIC}-0", shape)
    write_checkpoints(log_dir, shape.records)
    segments = len(list(partition.glob("*.log"))) - 1  # the last one is active
    size_bytes = sum(path.stat().st_size for path in partition.glob("*.log"))

    uploaded: list[int] = []

    def directory(_: Store) -> Run:
        command = [str(PROGRAM), "compact", str(partition), "--out", str(out / partition.name), "--quiet"]
        run = measured(command, {}, list)
        if not any(path.stat().st_size for path in (out / partition.name).glob("*.log")):
            raise RuntimeError("nothing was written")
        shutil.rmtree(out)
        return run

    def archive(store: Store) -> Run:
        bench.backfill("uncompacted", log_dir)
        command = [
            str(PROGRAM),
            "compact",
            "--archive",
            f"s3://{store.bucket}/uncompacted",
            "--topic",
            TOPIC,
            "--quiet",
        ]
        run = measured(command, bench.ours(store, "uncompacted"), bench.store_pids)
        sizes = dict(bench.sizes("uncompacted/"))
        if len([key for key in sizes if "/commits/" in key]) <= segments:
            raise RuntimeError("no compaction was committed")
        uploaded.append(sum(size for key, size in sizes.items() if key.endswith(".log")) - size_bytes)
        bench.delete("uncompacted/")
        return run

    def moved(store: Store) -> Run:
        bench.backfill("uncompacted", log_dir)
        keys = [key for key, _ in bench.sizes("uncompacted/") if key.endswith(".log")]
        out.mkdir()
        # Our compaction was the first to run: as many bytes go back as it has uploaded.
        task = {"keys": keys, "directory": str(out), "files_at_once": 4, "prefix": "uncompacted"}
        run = measured(boto3_command(store, {**task, "upload_bytes": uploaded[-1]}), {}, bench.store_pids)
        shutil.rmtree(out)
        bench.delete("uncompacted/")
        return run

    def cleaner(_: Store) -> Run:
        with cleaning_broker(partition, bench.scratch / "cleaner") as broker:
            run = measured_server(broker.process.pid, lambda: None, lambda: broker.cleaned_s is not None)
            # By its own log line: the cleaner begins while the broker starts. CPU seconds are the whole broker's, start and all.
            used = process_cpu_s(broker.process.pid)
            return dataclasses.replace(run, wall_s=broker.cleaned_s or 0.0, cpu_s=used)

    contestants: dict[str, Callable[[Store], Run]] = {
        f"{OURS} compact DIR": directory,
        f"{OURS} compact --archive": archive,
        _FLOOR: moved,
    }
    if not bench.tiny:
        contestants["Kafka's LogCleaner"] = cleaner
    promises = [Promise(f"{OURS} compact --archive", [_FLOOR], ratio=0.7, peak_mb=700, seconds=8, received=1.1)]
    uses_store = frozenset({f"{OURS} compact --archive", _FLOOR})
    return Road("compact", "Compaction", size_bytes, contestants, uses_store, promises)
