"""Archives on a real store, compacted, and what is live in them afterwards."""

from __future__ import annotations

from pathlib import Path

from sidecar.clock import SystemClock
from sidecar.commits.commit_log import CommitLog
from sidecar.commits.lineages import find_all_lineages
from sidecar.compaction.rules import CompactionRules
from sidecar.compaction_strategy import Strategy
from sidecar.compactor.archive.compactor import ArchiveCompactor
from sidecar.compactor.archive.plan import CompactionRequest
from sidecar.config import Settings
from sidecar.config.loading import load_settings
from sidecar.engine_ports import StageEngine
from sidecar.host.process_store import store_of
from sidecar.model import PartName
from sidecar.runner.backfill import backfill
from sidecar.verify.verify import verify_archive
from tests.golden import golden

NOW_MS = SystemClock().now_ms()


def archived(flags: dict[str, str], url: str, place: Path) -> Settings:
    """Two topics' partitions, in an archive of their own. `flags`: settings that lead to the store."""
    chosen = {
        **flags,
        "store.url": url,
        "broker.log_dirs": [golden("4.3.0") / "logs"],
        "broker.assume_leader": True,
        "broker.settle_ms": 0,
        "run.state_dir": place,
        "topics.include": ["compacted", "transactions"],
    }
    settings = load_settings(flags=chosen).settings
    assert backfill(settings, dry_run=False).exit_code == 0
    return settings


def compact(settings: Settings, engine: StageEngine) -> int:
    """Every partition in one go; returns how many commits that made."""
    store = store_of(settings.store)
    rules = CompactionRules(NOW_MS, strategy=Strategy.TIMESTAMP)
    requests = [CompactionRequest(lineage.root, rules) for lineage in find_all_lineages(store)]
    done = ArchiveCompactor(settings.store, engine, SystemClock(), split_bytes=4096).compact(requests)
    assert [one.error for one in done] == [None] * len(requests)
    return sum(one.commit_number is not None for one in done)


def live(settings: Settings) -> dict[str, list[tuple[int, int, int, int | None]]]:
    """By partition the live segments: offsets, size and checksum of their logs; and all of it is sound."""
    store = store_of(settings.store)
    assert all(found.is_sound for found in verify_archive(store, SystemClock(), deep=True))
    found = {}
    for lineage in find_all_lineages(store):
        segments = CommitLog(store, lineage.root, SystemClock()).read().segments
        logs = [(segment, segment.part(PartName.LOG)) for segment in segments]
        found[str(lineage.topic_partition)] = [
            (segment.base_offset, segment.end_offset, log.size_bytes, log.crc32c) for segment, log in logs if log
        ]
    return found
