"""The JVM of an embedded Spark comes with the first work and goes with the last. No argument of it is secret."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sidecar.spark.launcher import archive_path
from tests.cli.running import in_this_process
from tests.spark.fresh_process import python

pytestmark = [pytest.mark.real, pytest.mark.slow]

_SECRET = "geheim: ä=\\\U0001f511#! x"
_PROGRAM = """
import os, sys, time
from pathlib import Path
from sidecar.config import SparkSettings
from sidecar.spark.embedded import EmbeddedSpark
from sidecar.spark.engine import SparkEngine
from tests.spark.slow_tasks import doubled

name, secret, scratch, archive = sys.argv[1:]

def children():
    found = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    return [pid for pid in found if b"java" in command(pid)]

def command(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""  # It has ended since.

settings = SparkSettings(
    master="local[1]", driver_memory_bytes=512 << 20, idle_stop_s=0.5, local_dir=scratch, options=(f"{name}={secret}",)
)
spark = EmbeddedSpark(settings)
assert children() == []
for round in range(2):
    with spark.context() as context:
        ours = [command(pid) for pid in children() if scratch.encode() in command(pid)]
        assert ours and not [arguments for arguments in ours if b"geheim" in arguments]
        assert archive in Path(f"/proc/{context._gateway.proc.pid}/maps").read_text()
        assert context.getConf().get(name) == secret
        assert context.getConf().get("spark.app.name") == "tiered-sidecar"
        assert not [path for path in Path(scratch).rglob("*") if path.is_file() and b"geheim" in path.read_bytes()]
    answers = SparkEngine(spark).run(doubled, [1, 2])
    # Behind the last answer the JVM may be gone as soon as we look.
    assert (next(answers), len(children()), *answers) == (b"2", 1, b"4")
    deadline = time.monotonic() + 60
    while children() or list(Path(scratch).iterdir()):
        assert time.monotonic() < deadline, "the JVM or its files outlive the work"
        time.sleep(0.1)
assert not {"SPARK_LOCAL_IP", "PYSPARK_PYTHON", "PYSPARK_SUBMIT_ARGS"} & set(os.environ)
print("ended")
"""


def test_the_jvm_ends_when_idle_and_starts_again_from_its_class_archive_without_secrets_among_its_arguments(
    tmp_path: Path,
) -> None:
    # It is there already, but for a test that runs alone.
    assert in_this_process("prepare").code == 0
    archive = str(archive_path(None, os.environ))
    done = python("-c", _PROGRAM, "spark.hadoop.fs.s3a.secret.key", _SECRET, str(tmp_path / "local"), archive)
    assert done.stdout == "ended\n", done.stderr
    assert "WARN" not in done.stderr.replace("WARNING: Using incubator modules", "")
    assert "geheim" not in done.stderr
