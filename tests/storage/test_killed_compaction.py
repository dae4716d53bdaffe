"""`compact --archive` killed with SIGKILL while its copies are in staging: the archive is whole, and the next run clears up."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sidecar.model import ObjectKey
from tests.cli.running import in_this_process
from tests.fakes.manual_clock import ManualClock
from tests.golden import golden
from tests.real.product import environment, store_of, variables_of
from tests.runner.rig import archived_states
from tests.servers.s3_server import ACCESS_KEY, REGION, SECRET_KEY
from tests.storage.s3_servers import new_bucket
from tests.verifying import verify_partition

ROOT = Path(__file__).parents[2]
DIES_AFTER = """
import os, signal, sys
from sidecar.cli import main
from sidecar.compactor.archive import compactor

step = getattr(compactor, sys.argv[1])

def dies(*arguments, **named):
    step(*arguments, **named)
    os.kill(os.getpid(), signal.SIGKILL)

setattr(compactor, sys.argv[1], dies)
sys.argv = ["tiered-sidecar", *sys.argv[2:]]
main()
"""
"""The program with a step after which it is killed."""


@pytest.mark.real
@pytest.mark.parametrize(
    ("step", "uploads"), [pytest.param("rewritten", False, marks=pytest.mark.apart), ("finish", True)]
)
def test_what_a_killed_compaction_left_in_staging_is_removed_by_the_next(
    step: str, uploads: bool, versitygw_endpoint: str, tmp_path: Path
) -> None:
    bucket, staging = new_bucket(versitygw_endpoint), tmp_path / "staging"
    settings = {
        "store.url": f"s3://{bucket}/archive",
        "store.s3.endpoint_url": versitygw_endpoint,
        "store.s3.region": REGION,
        "store.s3.addressing_style": "path",
        "store.s3.access_key_id": ACCESS_KEY,
        "store.s3.secret_access_key": SECRET_KEY,
        "compaction.staging_dir": str(staging),
        "run.state_dir": str(tmp_path / "state"),
    }
    log_dir = golden("4.3.0") / "logs"
    backfill = ["backfill", "--log-dir", str(log_dir), "--assume-leader", "--topic", "orders", "--quiet"]
    assert in_this_process(*backfill, variables=variables_of(settings)).code == 0
    compact = ["compact", "--archive", settings["store.url"], "--topic", "orders", "--engine", "local", "--quiet"]
    with store_of(settings) as store:
        before = archived_states(store)
        keys = {facts.key for facts in store.list("")}

        killed = [sys.executable, "-c", DIES_AFTER, step, *compact]
        done = subprocess.run(
            killed, cwd=ROOT, env=environment(settings), capture_output=True, timeout=300, check=False
        )
        assert done.returncode == -signal.SIGKILL, done.stderr
        (left,) = staging.iterdir()
        assert {".copy", ".part"} <= {path.suffix for path in left.iterdir()}
        assert archived_states(store) == before
        uploaded = {facts.key for facts in store.list("")} - keys
        assert bool(uploaded) is uploads
        assert all("/segments/" in key for key in uploaded)

        done_again = in_this_process(*compact, variables=variables_of(settings))
        assert done_again.code == 0, done_again
        assert list(staging.iterdir()) == []
        for name, state in archived_states(store).items():
            assert {segment.generation for segment in state.segments} != {0}, name
            root = ObjectKey(state.lineage.root)
            found = verify_partition(store, root, ManualClock(0), deep=True)
            assert found.problems == ()
            # These are left to gc: another process might be about to commit them.
            assert {orphan.key for orphan in found.orphans} == {key for key in uploaded if key.startswith(root)}
