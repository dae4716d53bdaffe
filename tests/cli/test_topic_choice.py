"""--topic chooses among what an archive has: entries of `compaction.topics` for other topics do not matter."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.running import in_this_process
from tests.cli.test_compaction_rules import Site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("site"))


@pytest.mark.parametrize("command", ["status", "verify", "gc", "snapshots check", "snapshots rebuild"])
def test_a_topic_is_chosen_although_the_settings_compact_another(site: Site, command: str, tmp_path: Path) -> None:
    settings = site.settings("accounts")
    out = ["--out", str(tmp_path / "snapshots")] if command == "snapshots rebuild" else []
    place = ("--archive", str(site.archive), "--config", str(settings), *out)
    chosen = in_this_process(*command.split(), "--topic", "hdr", *place, "--json")
    assert chosen.code == 0, chosen.err
    assert "hdr" in chosen.out if command != "gc" else json.loads(chosen.out.splitlines()[-1])
    other = in_this_process(*command.split(), "--topic", "orders", *place, "--json")
    assert "accounts" not in other.err


@pytest.mark.parametrize("command", ["status", "verify", "gc --dry-run", "snapshots check", "compact --dry-run"])
def test_a_pattern_that_chooses_nothing_is_named_although_another_one_chooses(site: Site, command: str) -> None:
    both = ("--topic", "hdr", "--topic", "hdrr", "--archive", str(site.archive), "--set", "gc.grace_period_ms=0")
    done = in_this_process(*command.split(), *both)
    assert done.code == 0, done.err
    assert "warning: hdrr (--topic or topics.include): matches no topic of the archive" in done.err
    assert "warning: hdr " not in done.err
