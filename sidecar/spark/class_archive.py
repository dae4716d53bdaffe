"""The archive of loaded classes that a JVM maps instead of reading 280 jars: half the time to the first result.

It holds for one Java and one set of jars; the JVM checks that itself, and goes on without an archive that does not fit.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path


def class_archive(java: str, jars: Sequence[Path], environment: Mapping[str, str]) -> Path:
    """Its place in the user's cache: `$XDG_CACHE_HOME` or `~/.cache`. Another Java or other jars have another one."""
    found = hashlib.sha256()
    program = Path(os.path.realpath(shutil.which(java, path=environment.get("PATH")) or java))
    for path in (program, *jars):
        try:
            status = path.stat()
        except OSError:
            continue
        # In whole seconds, as the JVM itself compares them: the layers of an image keep no more.
        found.update(f"{path} {status.st_size} {int(status.st_mtime)}\n".encode())
    return cache_folder(environment) / f"spark-classes-{found.hexdigest()[:16]}.jsa"


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Ours in the user's cache; it may not exist."""
    configured = environment.get("XDG_CACHE_HOME")
    return (Path(configured) if configured else Path("~/.cache").expanduser()) / "tiered-sidecar"
