"""What an idle `run` must not load: compilers and engines that take more memory than all of its work."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

from sidecar.config import Settings
from sidecar.store_settings import Section

HEAVY = ("numba", "llvmlite", "pandas", "pyspark", "pyarrow", "scipy", "kafka", "boto3", "botocore", "fsspec", "s3fs")


def test_run_begins_without_what_only_work_needs() -> None:
    program = (
        f"import sys, sidecar.daemon, sidecar.cli.engines;print(*(name for name in {HEAVY!r} if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.split() == []


def test_archiving_restore_and_verification_load_no_compiler_and_no_logs() -> None:
    program = (
        "import sys, sidecar.runner.backfill, sidecar.restore.restore, sidecar.verify.verify, sidecar.snapshots.heal;"
        "print(*(name for name in ('numba', 'llvmlite', 'structlog', 'rich') if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.split() == []


def _below(section: type[Section]) -> Iterator[type[Section]]:
    for found in section.__subclasses__():
        yield found
        yield from _below(found)


def test_pydantic_need_not_compile_the_annotations_of_settings() -> None:
    modules = {found.__module__ for found in _below(Section) if found.__module__.startswith("sidecar.")}
    assert Settings.__module__ in modules
    assert [name for name in modules if hasattr(sys.modules[name], "annotations")] == []
