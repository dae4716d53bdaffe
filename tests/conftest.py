"""What holds for all tests."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# Workers of pytest-xdist are told the width of a terminal, which is not that of the pipes that programs under test write to.
os.environ.pop("COLUMNS", None)

# A kernel is compiled within whichever example calls it first, so single examples have no deadline; whole tests have one.
# The gate asks the same questions each time; new examples are found where people work.
settings.register_profile("default", deadline=None, print_blob=True, derandomize=bool(os.environ.get("CI")))
settings.load_profile("default")

LONGEST_FILES = (
    "tests/real/test_leadership.py",
    "tests/spark/test_cluster.py",
    "tests/real/test_run_daemon.py",
    "tests/real/test_backfill_versitygw.py",
    "tests/real/test_snapshot_danger.py",
    "tests/real/test_heal_end_to_end.py",
    "tests/spark/test_compaction.py",
    "tests/iam/test_policies.py",
    "tests/real/test_secure_broker.py",
    "tests/real/test_restore_live.py",
    "tests/real/test_restore.py",
    "tests/compaction/test_against_kafka.py",
    "tests/real/test_soak_versions.py",
    "tests/real/test_compaction_in_run.py",
    "tests/real/test_archive_compaction.py",
    "tests/pipeline/test_crashes.py",
)
"""A file's tests run on one worker: one that lasts minutes and begins last leaves the others idle."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The longest files first; all else stays as it is."""
    ranks = {config.rootpath / file: rank for rank, file in enumerate(LONGEST_FILES)}
    items.sort(key=lambda item: ranks.get(item.path, len(ranks)))
