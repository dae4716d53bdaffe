"""Numbers, times and remedies in words that people read."""

from __future__ import annotations

from datetime import UTC, datetime

UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
NO_BREAK = "\u00a0"

REMEDIES = {
    "BrokerUnavailable": "Is the broker up? Else look at broker.connection: servers, TLS, SASL, rights to describe.",
    "CleanerStalled": "Look for “uncleanable” in log-cleaner.log; a cleaner thread that died starts with the broker only.",
    "CommitConflict": "Nothing, if it passes: another sidecar archives the same partition and was faster.",
    "CommitRefused": "Something else writes into this archive, or a hand changed it: tiered-sidecar verify says what it holds.",
    "CorruptFile": "What the text says last; tiered-sidecar inspect FILE shows what is damaged.",
    "CoverageHole": "",
    "Fenced": "Nothing here: another broker leads the partition, and its sidecar archives it.",
    "LogDirsUnformatted": "Nothing beside a new broker: it formats them. Else mount the disk, or correct broker.log_dirs.",
    "LineageUnknown": "Let the broker lead whose segments were archived before, or set store.url to another prefix.",
    "ObjectExists": "Nothing, if it passes: another sidecar wrote the same object first.",
    "ObjectMissing": "Create the place that store.url names. If an object of the archive is gone: tiered-sidecar verify lists all.",
    "ObjectDamaged": "Bytes changed on the way, or the store lost some: verify --deep tells which.",
    "OutcomeUnknown": "Nothing, if it passes: the next turn reads the commit log. Else do what the text says of the store.",
    "PartitionError": "Do what the text says: the other partitions go on, this one is tried again after a while.",
    "RecordRefused": "Correct the producer of the record that the text names, or set compaction.on_unkeyed or compaction.strict.",
    "RightMissing": "Give the right with the command in the text; docs/how-to/connect-to-a-broker.md lists all that are needed.",
    "RowsLost": "Nothing, if it passes: nothing was replaced, and compaction runs again. Else set spark.engine to local.",
    "OffsetsLost": "Find out why uploads were late, or who removed files. The archive goes on, and says what it lacks.",
    "SegmentChanged": "Nothing: the broker replaced the file, it is looked at again.",
    "SettingsError": "Correct the setting that the text names: a reload takes it over, or says that it needs a restart.",
    "SnapshotMismatch": "The archive has a right one. tiered-sidecar snapshots check LOG_DIR names the producers.",
    "StagingFull": "Give the volume of run.state_dir and compaction.staging_dir more room.",
    "StagingTooSmall": "Raise compaction.max_staging_bytes to what the text says, and give compaction.staging_dir that room.",
    "StoreDenied": "Keys or rights are wrong or have expired: docs/reference/iam.md has the least rights.",
    "StoreError": "The store refused: its own log says why. tiered-sidecar doctor --area store asks it everything that is needed.",
    "StoreMissing": "Create the bucket or directory, or correct store.url.",
    "StoreUnavailable": "Look at the network, the store's health and its limits; uploads go on by themselves.",
    "VerificationMismatch": "Stored objects differ from their commit: tiered-sidecar verify --deep names them all.",
    "StoreUnsafe": "The store cannot do what an archive needs: the text names it. Use another store.",
    "StoreUnsupported": "The store does not offer this function: tiered-sidecar doctor --area store says what needs it.",
    "TwoWriters": "Writers would overwrite each other's commits: use another store.",
}
"""What to do, by the class of an error; "" where its text says everything."""


def remedy(kind: str) -> str:
    """What to do about an error of this class, "" where nothing is known, or the text says it."""
    return REMEDIES.get(kind, "")


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
    """`45 s`, `12 min`, `5 h`, `3 days`: rounded down, so that no deadline looks later than it is."""
    for unit_s, unit in ((86_400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit_s:
            return f"{int(seconds // unit_s)}{NO_BREAK}{unit}"
    return f"{max(0, int(seconds))}{NO_BREAK}s"


def time_text(at_ms: int) -> str:
    """`14:05:09`, of the clock that all brokers share."""
    return f"{_utc(at_ms):%H:%M:%S}"


def machine_time(at_ms: int) -> str:
    """`2026-11-21T14:05:09Z`."""
    return f"{_utc(at_ms):%Y-%m-%dT%H:%M:%SZ}"


def plural(number: int, one: str, many: str = "") -> str:
    """`1 partition`, `2 partitions`."""
    return f"{count_text(number)} {one if number == 1 else many or one + 's'}"


def _utc(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC)
