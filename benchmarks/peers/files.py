"""The two roads that end in files: archive finished segments, and get them back."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from filecmp import cmp
from functools import partial
from pathlib import Path

from benchmarks.measuring import Run, Store, measured
from benchmarks.peers.bench import OURS, Bench, Road
from benchmarks.peers.copiers import COPIERS, Copier
from benchmarks.product_runs import PROGRAM
from benchmarks.segments import TOPIC
from tests.servers.kafka_format import new_uuid

_SOURCE = "source"
"""Prefix below which the copiers find what they download."""


def archive_road(bench: Bench) -> Road:
    """From rolled segments on disk to objects in the store."""

    def ours(store: Store) -> Run:
        command = [str(PROGRAM), "backfill", "--log-dir", str(bench.log_dir), "--assume-leader", "--quiet"]
        return uploaded(measured(command, bench.ours(store, "out"), bench.store_pids))

    def copied(copier: Copier, store: Store) -> Run:
        command = copier.upload(store, "out", bench.finished)
        return uploaded(measured(command, copier.variables(store), bench.store_pids))

    def uploaded(run: Run) -> Run:
        found = sum(size for key, size in bench.sizes("out/") if key.endswith(".log"))
        if found != bench.size_bytes:
            raise RuntimeError(f"{found} bytes of segments arrived of {bench.size_bytes}")
        bench.delete("out/")
        return run

    contestants = {f"{OURS} backfill": ours, **_copiers(bench, copied)}
    return Road("archive", "Archive finished segments", bench.size_bytes, contestants, frozenset(contestants))


def restore_road(bench: Bench) -> Road:
    """From the store to files that a broker could be given, synced: a broker that starts trusts them."""
    bench.backfill("archive", bench.log_dir)
    upload = COPIERS["boto3, tuned"]
    measured(upload.upload(bench.store, _SOURCE, bench.finished), {}, bench.store_pids)
    target = bench.scratch / "restored"

    def ours(store: Store) -> Run:
        target.mkdir()
        shutil.copy(bench.log_dir / "meta.properties", target)
        command = [str(PROGRAM), "restore", "--topic", TOPIC, "--to", str(target), "--topic-id", new_uuid(), "--quiet"]
        return restored(measured(command, bench.ours(store, "archive"), bench.store_pids), target / f"{TOPIC}-0")

    def copied(copier: Copier, store: Store) -> Run:
        target.mkdir()
        command = copier.download(store, _SOURCE, target)
        variables = copier.variables(store)
        return restored(measured(command, variables, bench.store_pids, finish=partial(_sync, target)), target)

    def restored(run: Run, directory: Path) -> Run:
        for source in bench.finished.glob("*.log"):
            if not cmp(source, directory / source.name, shallow=False):
                raise RuntimeError(f"{source.name} did not come back as it was")
        shutil.rmtree(target)
        return run

    contestants = {f"{OURS} restore": ours, **_copiers(bench, copied)}
    return Road("restore", "Files on disk again", bench.size_bytes, contestants, frozenset(contestants))


def _copiers(bench: Bench, copied: Callable[[Copier, Store], Run]) -> dict[str, Callable[[Store], Run]]:
    chosen = {name: copier for name, copier in COPIERS.items() if not bench.tiny or name.startswith("boto3")}
    return {name: partial(copied, copier) for name, copier in chosen.items()}


def _sync(directory: Path) -> None:
    """As restore does it: none of the copiers does."""
    subprocess.run(["sync", *directory.iterdir()], check=True)
