"""Plans that wait for a worker while settings are reloaded."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from threading import Event

import structlog

from sidecar.discovery.scan import ScanResult
from tests.compactor.before_upload_rig import before_upload, rig, rounds_scan
from tests.runner.test_tasks_during_checks import passed
from tests.runner.waiting import within

WAIT_S = 60.0


def test_what_was_planned_before_a_reload_does_not_go_without_compaction_and_in_silence(tmp_path: Path) -> None:
    with structlog.testing.capture_logs() as logs, rig(tmp_path, "orders-0", "compacted-0") as site:
        site.round()
        while site.compactor.cycle():
            pass
        met, opened, listed = Event(), Event(), Event()

        def gate(operation: str, key: str) -> None:
            if operation == "upload" and "/segments/" in key:
                met.set()
                assert opened.wait(WAIT_S)

        scan = rounds_scan(site.log_dir)

        def slow_scan(doubted: Collection[Path] = ()) -> ScanResult:
            assert listed.wait(WAIT_S)
            return scan(doubted)

        site.store.before = gate
        with site.rounds as loop:
            loop.tasks.admits = True
            loop.begin_check()
            loop.drive(within(WAIT_S, lambda: met.is_set() and not loop.checks.is_under_way))
            (queued,) = loop.tasks.ready
            loop.adopt(slow_scan, before_upload(site.waiting.settings, site.context.clock))
            loop.begin_check()
            opened.set()
            loop.drive(passed(3.0))
            listed.set()
            loop.finish()
        reasons = [line["reason"] for line in logs if line["event"] == "archived_without_compaction"]
        raw = (
            site.generations(str(queued))
            if any(str(queued) in key.replace("/", "-") for key in site.store.objects)
            else []
        )
        assert not (raw and set(raw) == {0} and not reasons), (str(queued), raw, reasons)
