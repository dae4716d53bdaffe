"""Which tests stay together on one worker, and which begin first."""

from __future__ import annotations

from zlib import crc32

from xdist.scheduler import LoadFileScheduling

LONGEST_FILES = (
    "tests/real/test_leadership.py",
    "tests/kube",
    "tests/real/test_run_daemon.py",
    "tests/real/test_broker_facts.py",
    "tests/spark/test_cluster.py",
    "tests/real/test_backfill_versitygw.py",
    "tests/real/test_restore_live.py",
    "tests/real/test_restore.py",
    "tests/real/test_heal_end_to_end.py",
    "tests/real/test_backfill_live.py",
    "tests/real/test_disaster_recovery_page.py",
    "tests/spark/local",
    "tests/real/test_snapshot_danger.py",
    "tests/spark/test_lifecycle.py",
    "tests/helm/test_demo.py",
    "tests/real/test_held_segments.py",
    "tests/real/test_secure_broker.py",
    "tests/storage/test_store_contract.py",
    "tests/oracle",
    "tests/real/test_archive_compaction.py",
    "tests/stores/test_faults.py",
    "tests/real/test_doctor.py",
    "tests/spark/test_launcher.py",
    "tests/spark/test_embedded.py",
    "tests/stores/test_story.py",
    "tests/stores/test_kinds.py",
    "tests/real/test_broker_rights.py",
    "tests/real/test_cleaner_watch.py",
    "tests/compactor/test_groups_before_upload.py",
    "tests/histories/test_histories.py",
    "tests/cli/test_journey.py",
    "tests/page/test_in_browser.py",
    "tests/storage/test_s3_faults.py",
)
"""A file's tests run on one worker: one that lasts minutes and begins last leaves the others idle."""
SHARED_SERVERS = {
    "tests/kube/": "tests/kube",
    "tests/spark/local/": "tests/spark/local",
    "tests/oracle/": "tests/oracle",
    "tests/compaction/test_against_kafka.py": "tests/oracle",
    "tests/compaction/test_kafka_reads_directories.py": "tests/oracle",
    "tests/logformat/test_rebuild_against_kafka.py": "tests/oracle",
    "tests/restore/test_cuts_of_compacted_archives.py": "tests/oracle",
}
"""Files that share a Kubernetes API server, or a JVM with Spark or Kafka's classes, stay together: it costs as much as they do."""
INDEPENDENT_FILE = "tests/simulation/test_simulation.py"
"""Its tests share nothing. They need a core all the time, which tests that wait for brokers leave idle: parts run next to those."""
PARTS = 5
_STEP = -(-len(LONGEST_FILES) // PARTS)


def unit_of(nodeid: str) -> str:
    """What a test stays together with: its file, the files of its server, or its part of the one whose tests are independent."""
    file = nodeid.partition("::")[0]
    if file == INDEPENDENT_FILE:
        return f"{file} {crc32(nodeid.encode()) % PARTS}"
    return next((unit for begin, unit in SHARED_SERVERS.items() if file.startswith(begin)), file)


_RANKS = {file: (rank, 1) for rank, file in enumerate(LONGEST_FILES)} | {
    f"{INDEPENDENT_FILE} {part}": (_STEP * part, 0) for part in range(PARTS)
}


def rank_of(nodeid: str) -> tuple[int, int]:
    """Tests begin in this order."""
    return _RANKS.get(unit_of(nodeid), (len(LONGEST_FILES), 1))


class UnitScheduling(LoadFileScheduling):
    """`--dist loadfile`, with units instead of files."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)
