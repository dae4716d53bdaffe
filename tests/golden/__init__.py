"""Log directories that real brokers wrote (README.md says what is inside), and what Kafka's own tool prints of them.

The directories are shared by all tests and must not be changed: a test that writes takes `golden_copy`.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import lzma
import shutil
import tarfile
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from tests.servers.dist import cache_directory

VERSIONS = ("2.7.2", "3.9.1", "4.3.0")
STORE = Path(__file__).parent
DUMP_HEADER = "Dumping "


def archive_of(version: str) -> Path:
    """What `golden` unpacks."""
    return STORE / f"{version}.tar.xz"


def unpack(archive: Path, directory: Path) -> None:
    """Into a directory that exists."""
    with tarfile.open(archive) as tar:
        # As an attribute: Python before 3.11.4 (Debian 12 has 3.11.2) knows no parameter `filter`, and later ones warn without.
        tar.extraction_filter = getattr(tarfile, "data_filter", None)
        tar.extractall(directory)


@cache
def golden(version: str) -> Path:
    """The unpacked directories of a broker version, with modification times: `logs` and `compacted` (log dirs)."""
    archive = archive_of(version)
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()[:16]
    parent = cache_directory() / "golden"
    parent.mkdir(exist_ok=True)
    target = parent / f"{version}-{digest}"
    with (parent / f"{version}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            with tempfile.TemporaryDirectory(dir=parent) as unpacked:
                unpack(archive, Path(unpacked))
                Path(unpacked).rename(target)
                Path(unpacked).mkdir()
    return target


def golden_copy(version: str, destination: Path) -> Path:
    """A copy of `golden(version)` at `destination` (absent before), with modification times, for tests that write."""
    return shutil.copytree(golden(version), destination, copy_function=shutil.copy2)


def partitions(version: str, log_dir: str = "logs") -> list[Path]:
    """The partition directories of the topics in the manifest (no internal ones), sorted by name."""
    topics = manifest(version)["topics"]
    found = (golden(version) / log_dir).iterdir()
    return sorted(path for path in found if path.is_dir() and path.name.rpartition("-")[0] in topics)


@cache
def manifest(version: str) -> dict[str, Any]:
    """What the generator knew: `wall_clock_ms`, `cluster_id`, `broker_id`, and the topics; see README.md."""
    manifests: dict[str, dict[str, Any]] = json.loads((STORE / "manifest.json").read_text())
    return manifests[version]


def wall_clock_ms(version: str) -> int:
    """The time at which generation ended. Tests fix their clock to it: a day later every producer is expired."""
    return int(manifest(version)["wall_clock_ms"])


def dump_text(version: str, relative_path: str) -> str:
    """What DumpLogSegments of `version` printed for one file, for example `logs/orders-0/00000000000000000000.log`.

    The line that names the file is left out. Raises KeyError for a file that was not dumped.
    """
    return _dumps(version)[relative_path]


def dumped_paths(version: str) -> list[str]:
    """The relative paths that `dump_text` knows."""
    return sorted(_dumps(version))


def split_dumps(output: str) -> dict[str, str]:
    """The output of one DumpLogSegments run, by the file names it was given."""
    dumps: dict[str, str] = {}
    for section in ("\n" + output).split("\n" + DUMP_HEADER)[1:]:
        name, _, text = section.partition("\n")
        dumps[name] = text
    return dumps


@cache
def _dumps(version: str) -> dict[str, str]:
    return split_dumps(lzma.decompress((STORE / "dump" / f"{version}.txt.xz").read_bytes()).decode())
