"""Numbers, times and remedies in words that people read."""

from datetime import UTC, datetime
from functools import partial

from sidecar import plurals

UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
NO_BREAK = "\u00a0"

REMEDIES = {
    "BrokerUnavailable": "Start the broker. If it is up, check broker.connection: servers, TLS, SASL, ACLs.",
    "CleanerStalled": "Search log-cleaner.log for “uncleanable”. A dead cleaner thread starts again only with the broker.",
    "CommitConflict": "None if it passes: another sidecar archives the same partition and committed first.",
    "CommitRefused": "",
    "CompactionCrashed": "Report it with the traceback in the log. The archive stays as it was; compaction is retried later.",
    "CompactionCutOff": "None: the settings changed or the process stopped. Compaction runs again.",
    "CorruptFile": "Follow the end of the message. tiered-sidecar inspect FILE shows the damage.",
    "CoverageHole": "",
    "Fenced": "None here: another broker is the leader, and its sidecar archives the partition.",
    "LogDirsUnformatted": "None for a new broker: it formats them. Otherwise mount the disk, or correct broker.log_dirs.",
    "LineageUnknown": "Make the broker the leader whose segments were archived before, or set store.url to another prefix.",
    "ObjectExists": "None if it passes: another sidecar wrote the same object first.",
    "ObjectFrozen": "Have the store restore the object, and exclude the archive from rules of the bucket that change its storage "
    "class.",
    "ObjectMissing": "Create the bucket or directory of store.url. If an object of the archive is missing: tiered-sidecar "
    "verify lists all.",
    "ObjectDamaged": "Bytes changed in transit, or the store lost some. Run tiered-sidecar verify --deep.",
    "OutcomeUnknown": "None if it passes: the next cycle reads the commit log. Otherwise follow the message about the store.",
    "PartitionError": "Follow the message. Other partitions go on; this one is retried after a backoff.",
    "RecordRefused": "Correct the producer of the record in the message, or set compaction.on_unkeyed or compaction.strict.",
    "ReplicasNotSeen": "Mount the broker's volume, and name its directory in broker.log_dirs. docs/how-to/connect-to-a-broker.md "
    "has the usual causes.",
    "RightMissing": "Grant the permission with the command in the text; docs/how-to/connect-to-a-broker.md lists all of them.",
    "RowsLost": "None if it passes: nothing was replaced, and compaction runs again. Otherwise set spark.engine to local.",
    "OffsetsLost": "Find out why uploads were late, or what deleted files. Archiving goes on; the gap stays recorded.",
    "SegmentChanged": "None if it passes: the file changed, and the next scan reads it again. Otherwise follow the message.",
    "SettingsError": "Correct the setting in the message. A reload applies it, or reports that it needs a restart.",
    "SnapshotMismatch": "None for the archive: it has a correct one. tiered-sidecar snapshots check LOG_DIR names the producers.",
    "StartFailed": "Follow the message. The start is tried again by itself, at once when the settings file changes.",
    "TooManyOpenFiles": "Raise the open-file limit of the process. Restart it when pinned_deleted_bytes in /status is 0.",
    "StaleLeadership": "None if it passes: another broker has not learned of the election yet. The retry commits the upload.",
    "StagingFull": "Enlarge the volume of run.state_dir and compaction.staging_dir.",
    "StagingTooSmall": "Raise compaction.max_staging_bytes to the value in the message, and give compaction.staging_dir "
    "that space.",
    "StateDirUnusable": "Check the disk and the permissions of run.state_dir. Restart when no deleted segment is pinned.",
    "StoreDenied": "Keys or permissions are wrong, or keys have expired: docs/reference/iam.md has the least permissions.",
    "StoreError": "The store refused the request; its own log has the reason. tiered-sidecar doctor --area store tests every call.",
    "StoreMissing": "Create the bucket or directory, or correct store.url.",
    "StoreUnavailable": "Check the network, the store's health and its limits. Uploads resume by themselves.",
    "VerificationMismatch": "Stored objects differ from their commit. tiered-sidecar verify --deep lists them.",
    "StoreUnsafe": "The store lacks a function that an archive needs; see the message. Use another store.",
    "StoreUnsupported": "The store lacks this function. tiered-sidecar doctor --area store shows what needs it.",
    "TwoWriters": "Concurrent writers would overwrite each other's commits. Use another store.",
}
"""What to do, by the class of an error; "" where its text says everything."""


def count_text(number: int) -> str:
    """`1,234,567`."""
    return f"{number:,}"


def bytes_text(size_bytes: float) -> str:
    """`3.2 GiB`; three digits at most."""
    size, unit = float(size_bytes), UNITS[0]
    for unit in UNITS:
        if size < 999.5 or unit == UNITS[-1]:
            break
        size /= 1024
    digits = 0 if unit == UNITS[0] or size >= 99.95 else 1
    return f"{size:.{digits}f}{NO_BREAK}{unit}"


def duration_text(seconds: float) -> str:
    """`45 s`, `12 min`, `5 h`, `3 days`: rounded down, so that no deadline appears later than it is."""
    for unit_s, unit in ((86_400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit_s:
            return f"{int(seconds // unit_s)}{NO_BREAK}{unit}"
    return f"{max(0, int(seconds))}{NO_BREAK}s"


def time_text(at_ms: int) -> str:
    """`14:05:09`, of the clock that all brokers share."""
    return machine_time(at_ms)[11:19]


def machine_time(at_ms: int) -> str:
    """`2026-11-21T14:05:09Z`."""
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"


plural = partial(plurals.plural, shown=count_text)
"""`1 partition`, `2,000 partitions`."""
