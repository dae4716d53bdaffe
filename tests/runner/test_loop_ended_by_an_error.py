"""What a loop that an error ends still does."""

from __future__ import annotations

from pathlib import Path
from threading import Timer

import pytest

from sidecar.errors import SettingsError
from tests.runner.rig import copy_partitions, rounds_over, tools_for
from tests.runner.test_tasks_during_checks import TOPICS, WAIT_S, Gates
from tests.runner.waiting import within


def test_an_error_that_ends_the_loop_begins_no_other_task(tmp_path: Path) -> None:
    log_dir, gates = copy_partitions(tmp_path, *(f"{topic}-0" for topic in TOPICS)), Gates()
    with tools_for(log_dir, gates.store, tmp_path / "state", workers=2, uploads_ahead=1) as context:
        busy = [gates.close("upload", topic, ".log") for topic in TOPICS]

        def ended_by_an_error() -> None:
            with rounds_over(context, log_dir) as loop:
                loop.begin_check()
                loop.drive(
                    within(
                        WAIT_S, lambda: not loop.checks.is_under_way and sum(gate.met.is_set() for gate in busy) == 2
                    )
                )
                first, second = (gate for gate in busy if gate.met.is_set())
                first.opened.set()
                Timer(1.0, second.opened.set).start()
                Timer(2.0, lambda: [gate.opened.set() for gate in busy]).start()
                raise SettingsError("what ends the loop")

        with pytest.raises(SettingsError):
            ended_by_an_error()
    assert sum(gate.met.is_set() for gate in busy) == 2
