"""Our own Java programs of one file, compiled once: `java X.java` would compile them at every start, for more than a second."""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from tests.servers.dist import cache_directory, tool
from tests.servers.process import ServerError

_COMPILE_TIMEOUT_S = 300.0


@cache
def compiled(source: Path, libs: Path) -> Path:
    """The directory with the classes of `source`, compiled on the jars of `libs`, keyed by both. Raises ServerError."""
    javac = tool("javac")
    key = hashlib.sha256(source.read_bytes() + (libs / "pom.xml").read_bytes()).hexdigest()[:20]
    target = cache_directory() / "java" / f"{source.stem}-{key}"
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as work:
        classes = Path(work) / "classes"
        # C1 only: the compiler lives for a second.
        options = ["-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC", "-nowarn", "-proc:none"]
        command = [javac, *options, "-cp", f"{libs}/*", "-d", str(classes), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_TIMEOUT_S)
        if done.returncode != 0:
            raise ServerError(f"{source.name} does not compile:\n{done.stdout}{done.stderr}")
        try:
            classes.rename(target)
        except OSError as error:
            if not target.exists():  # another process may have been faster; its classes are the same
                raise ServerError(f"cannot keep the classes of {source.name} in {target}: {error}") from error
    return target
