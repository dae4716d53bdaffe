"""What commands must not load before they need it: above all an idle `run`, and who sends the first request to a store."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from sidecar.config import Settings
from sidecar.store_settings import Section
from tests.cli.running import in_this_process
from tests.golden import golden

HEAVY = ("numba", "llvmlite", "pandas", "pyspark", "pyarrow", "scipy", "kafka", "boto3", "botocore", "fsspec", "s3fs")


def _loaded(program: str, names: Iterable[str]) -> list[str]:
    """Those of the modules that a process has at the end of this program."""
    listing = f"\nprint(*(name for name in {tuple(names)!r} if name in sys.modules), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{program}{listing}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return done.stderr.split()


def test_run_begins_without_what_only_work_needs() -> None:
    assert _loaded("import sidecar.daemon, sidecar.cli.engines", HEAVY) == []


def test_archiving_restore_and_verification_load_no_compiler_and_no_logs() -> None:
    program = "import sidecar.runner.backfill, sidecar.restore.restore, sidecar.verify.verify, sidecar.snapshots.heal"
    assert _loaded(program, ("numba", "llvmlite", "structlog", "rich")) == []


def test_restore_and_compaction_load_neither_the_reading_of_broker_files_nor_reasons_to_wait() -> None:
    program = "import sidecar.restore.restore, sidecar.compactor.archive.compactor"
    assert _loaded(program, ("sidecar.segment.reading", "sidecar.partition", "sidecar.storage.s3.bucket_rules")) == []


def test_restore_and_compaction_of_an_archive_load_no_client_of_brokers() -> None:
    compaction = "sidecar.compactor.command_rules, sidecar.compactor.archive.compactor, sidecar.rewriting.what_if"
    program = f"import sidecar.cli.restore.command, sidecar.restore.restore, {compaction}"
    assert _loaded(program, ("sidecar.broker.client", "sidecar.broker.cluster_view")) == []


@pytest.mark.parametrize(("command", "more"), [("status", ()), ("verify", ("sidecar.archive.replacement",))])
def test_who_reads_no_log_loads_no_log_format(command: str, more: tuple[str, ...], tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    places = ["--archive", archive, "--state-dir", tmp_path / "state", "--log-dir", golden("4.3.0") / "logs"]
    assert in_this_process("backfill", "--assume-leader", *places).code == 0
    program = (
        f"sys.argv = ['tiered-sidecar', '--quiet', {command!r}, '--json', '--archive', {str(archive)!r}]\n"
        "from sidecar.cli import main\ntry: main()\nexcept SystemExit as end: assert end.code == 0"
    )
    unused = ("numpy", "producer_state", "sidecar.topic_policy", "sidecar.partition", "ctypes", *HEAVY)
    assert _loaded(program, (*unused, *more)) == []


def test_a_deep_check_loads_the_log_format_after_the_first_request() -> None:
    program = "import sidecar.cli.reporting, sidecar.config, sidecar.verify.verify, sidecar.storage.s3.store"
    assert _loaded(program, ("botocore", "numpy", "sidecar.segment.log_check", "sidecar.storage.s3.bucket_rules")) == [
        "botocore"
    ]
    assert _loaded("import sidecar.segment.log_check", ("numpy", "producer_state.replay")) == ["numpy"]


def _below(section: type[Section]) -> Iterator[type[Section]]:
    for found in section.__subclasses__():
        yield found
        yield from _below(found)


def test_pydantic_need_not_compile_the_annotations_of_settings() -> None:
    modules = {found.__module__ for found in _below(Section) if found.__module__.startswith("sidecar.")}
    assert Settings.__module__ in modules
    assert [name for name in modules if hasattr(sys.modules[name], "annotations")] == []
