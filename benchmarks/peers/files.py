"""Tasks with segments as they are: archive them, get them back, and read them to prove that they are whole."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterable
from datetime import datetime
from filecmp import cmp
from functools import partial
from pathlib import Path

from benchmarks.measuring import Run, Store, measured
from benchmarks.peers.bench import OURS, Bench, Promise, Road
from benchmarks.peers.copiers import COPIERS, TUNED, Copier, boto3_command
from benchmarks.product_runs import PROGRAM
from benchmarks.segments import TOPIC
from tests.servers.kafka_format import new_uuid

_PUTS = 292
"""Create-only puts of the probe; see docs/decisions/0016."""
_CP, _SOURCE = "cp from a directory", "source"
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

    def least(store: Store) -> Run:
        task = {"checksums": 1, "puts": _PUTS}
        return uploaded(
            measured(TUNED.command(store, "out", bench.finished, upload=True, **task), {}, bench.store_pids)
        )

    peers = _copiers(bench, copied)
    # The least that an archive needs: each byte is checked before it is sent, and the store keeps create-only puts.
    floor = {"boto3, tuned, one checksum and the probe's puts": least}
    contestants = {f"{OURS} backfill": ours, **peers, **floor}
    promises = [Promise(f"{OURS} backfill", _boto3(peers), ratio=1.0, peak_mb=200, floor=list(floor))]
    return Road("archive", "Archive finished segments", bench.size_bytes, contestants, frozenset(contestants), promises)


def restore_road(bench: Bench) -> Road:
    """From the store to files that a broker could be given, synced: a broker that starts trusts them."""
    bench.backfill("archive", bench.log_dir)
    upload = COPIERS["boto3, tuned"]
    measured(upload.upload(bench.store, _SOURCE, bench.finished), {}, bench.store_pids)
    target = bench.scratch / "restored"
    directory = bench.gateway.objects / bench.store.bucket / "archive"

    def ours(store: Store, archive: str) -> Run:
        target.mkdir()
        shutil.copy(bench.log_dir / "meta.properties", target)
        command = [str(PROGRAM), "restore", "--topic", TOPIC, "--to", str(target), "--topic-id", new_uuid()]
        variables = {**bench.ours(store, "archive"), "TIERED_SIDECAR__STORE__URL": archive}
        return restored(measured(command, variables, bench.store_pids, transfer_s=_fetching_s), target / f"{TOPIC}-0")

    def copied(copier: Copier, store: Store) -> Run:
        return synced(copier.download(store, _SOURCE, target), copier.variables(store))

    def streamed(store: Store) -> Run:
        return synced(TUNED.command(store, _SOURCE, target, upload=False, streams=True), {})

    def cp(_: Store) -> Run:
        return synced(["cp", "--reflink=never", *map(str, directory.rglob("*.log")), str(target)], {})

    def synced(command: list[str], variables: dict[str, str]) -> Run:
        target.mkdir()
        finish = partial(_sync, target)
        return restored(measured(command, variables, bench.store_pids, finish=finish, transfer_s=_printed_s), target)

    def restored(run: Run, directory: Path) -> Run:
        for source in bench.finished.glob("*.log"):
            found = next(directory.glob(f"{source.stem}*.log"))  # an object's name has more behind the offset
            if not cmp(source, found, shallow=False):
                raise RuntimeError(f"{source.name} did not come back as it was")
        shutil.rmtree(target)
        return run

    from_store: dict[str, Callable[[Store], Run]] = {
        f"{OURS} restore": partial(ours, archive=f"s3://{bench.store.bucket}/archive"),
        **_copiers(bench, copied),
        "boto3, get_object": streamed,
    }
    of_directory = f"{OURS} restore, archive in a directory"
    in_directory: dict[str, Callable[[Store], Run]] = {of_directory: partial(ours, archive=str(directory)), _CP: cp}
    contestants = {**from_store, **in_directory}
    promises = [
        Promise(f"{OURS} restore", _boto3(from_store), ratio=0.95, peak_mb=200),
        Promise(of_directory, [_CP], ratio=0.0, peak_mb=200),
    ]
    return Road("restore", "Files on disk again", bench.size_bytes, contestants, frozenset(from_store), promises)


def verify_road(bench: Bench) -> Road:
    """Every byte of the archive read and checked; the peers only read."""
    bench.backfill("verified", bench.log_dir)
    objects = [key for key, _ in bench.sizes("verified/")]
    keys = [key for key in objects if key.endswith(".log")]
    small = [key for key in objects if not key.endswith(".log")]

    def ours(store: Store) -> Run:
        command = [str(PROGRAM), "verify", "--deep", "--engine", "local", "--quiet"]
        return measured(command, bench.ours(store, "verified"), bench.store_pids)

    def read(store: Store, objects_at_once: int, **more: object) -> Run:
        command = boto3_command(store, {"keys": keys, "files_at_once": objects_at_once, **more})
        return measured(command, {}, bench.store_pids, transfer_s=_printed_s)

    peers: dict[str, Callable[[Store], Run]] = {
        f"boto3 get_object, {count} at once": partial(read, objects_at_once=count)
        for count in ((1,) if bench.tiny else (1, 2, 4))
    }
    # The least that a proof needs: commits and indexes are read too, and each byte enters the checksum of its batch. That of the
    # object follows from these.
    floor = {
        f"a bare proof, {count} at once": partial(read, objects_at_once=count, checksums=1, first_gets=small)
        for count in ((2,) if bench.tiny else (2, 3))
    }
    contestants: dict[str, Callable[[Store], Run]] = {f"{OURS} verify --deep": ours, **peers, **floor}
    promises = [Promise(f"{OURS} verify --deep", list(peers), ratio=0.9, peak_mb=200, floor=list(floor))]
    return Road(
        "verify", "Prove that an archive is whole", bench.size_bytes, contestants, frozenset(contestants), promises
    )


def _boto3(contestants: Iterable[str]) -> list[str]:
    return [name for name in contestants if name.startswith("boto3")]


def _fetching_s(output: str) -> float:
    """Between the first progress line of the log and the last."""
    events = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    stamps = [datetime.fromisoformat(event["timestamp"]) for event in events if event.get("event") == "progress"]
    return (stamps[-1] - stamps[0]).total_seconds()


def _printed_s(output: str) -> float | None:
    """By `boto3_copy`; the other copiers do not print it."""
    try:
        return float(output)
    except ValueError:
        return None


def _copiers(bench: Bench, copied: Callable[[Copier, Store], Run]) -> dict[str, Callable[[Store], Run]]:
    chosen = {name: copier for name, copier in COPIERS.items() if not bench.tiny or name.startswith("boto3")}
    return {name: partial(copied, copier) for name, copier in chosen.items()}


def _sync(directory: Path) -> None:
    """As restore does it: none of the copiers does."""
    subprocess.run(["sync", *directory.iterdir()], check=True)
