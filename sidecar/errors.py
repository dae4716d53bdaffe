"""Every error the sidecar raises on purpose; docs/reference/exit-codes.md lists them by exit code."""

from collections.abc import Mapping
from enum import Flag, auto
from typing import Any, ClassVar, Final


class SidecarError(Exception):
    """Base of all; `exit_code` is what the command line ends with, `retryable` says whether trying again can help."""

    exit_code: ClassVar[int] = 1
    retryable: ClassVar[bool] = False
    _system_call: tuple[int, str] | None = None

    @property
    def system_call(self) -> tuple[int, str] | None:
        """Number and text of the failed system call that caused this, also if a worker process made it; None if none did."""
        cause = self.__cause__
        if isinstance(cause, OSError) and cause.errno is not None and cause.strerror:
            return cause.errno, cause.strerror
        return self._system_call

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle drops the cause, and subclasses take other arguments than `args`."""
        return _unpickled, (type(self), self.args, {**self.__dict__, "_system_call": self.system_call})


def _unpickled(kind: type[SidecarError], args: tuple[Any, ...], fields: Mapping[str, Any]) -> SidecarError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(fields)
    return error


class SettingsError(SidecarError):
    """A setting or an argument is wrong."""

    exit_code = 2


class LogDirsUnformatted(SettingsError):
    """No log dir says which cluster and broker it belongs to: not formatted yet, not mounted, or none of a broker's."""

    retryable = True


class StateDirUnusable(SettingsError):
    """The journal in `run.state_dir` cannot be read or written, for another reason than a full disk."""


class PartitionError(SidecarError):
    """One partition cannot go on; the message says why and what to do."""

    exit_code = 3


class CorruptFile(PartitionError):
    """Bytes that are not what their format demands.

    Args:
        what: expected and found, in words.
        file: path or object key, "" where only bytes are known (the caller adds it with `within`).
        position: byte position in the file, None if the file as a whole is meant.
        offset: log offset, where known.
        advice: what to do, where the file's kind alone does not tell. The text ends with it.
    """

    def __init__(
        self, what: str, *, file: str = "", position: int | None = None, offset: int | None = None, advice: str = ""
    ) -> None:
        place = [file] if file else []
        if position is not None:
            place.append(f"at byte {position}")
        if offset is not None:
            place.append(f"offset {offset}")
        text = f"{what}; {advice}" if advice else what
        super().__init__(f"{', '.join(place)}: {text}" if place else text)
        self.what = what
        self.advice = advice
        self.file = file
        self.position = position
        self.offset = offset

    def within(self, file: str, *, shift_bytes: int = 0) -> "CorruptFile":
        """The same finding, with the file it was found in and its position moved by `shift_bytes`."""
        position = None if self.position is None else self.position + shift_bytes
        return CorruptFile(self.what, file=file, position=position, offset=self.offset, advice=self.advice)


class RecordRefused(PartitionError):
    """A record that the rules of a topic do not let pass. Its file is as it should be."""

    def __init__(self, what: str, *, file: str = "", offset: int | None = None) -> None:
        place = ", ".join(filter(None, (file, "" if offset is None else f"offset {offset}")))
        super().__init__(f"{place}: {what}" if place else what)
        self.offset = offset


class SegmentChanged(PartitionError):
    """A source file changed or vanished while it was being read."""

    retryable = True


class TooManyOpenFiles(PartitionError):
    """This process, or the machine, may open no more files now."""

    retryable = True


class RowsLost(PartitionError):
    """Between two stages of a compaction the engine lost or damaged rows, or gave some twice. Nothing was replaced."""

    retryable = True


class CoverageHole(PartitionError):
    """Offsets are missing between what is archived, or a local segment, and the next segment.

    `hole`: `[from, to)`, the offsets that are missing; None where only the text names them.
    """

    def __init__(self, what: str, *, hole: tuple[int, int] | None = None) -> None:
        super().__init__(what)
        self.hole = hole


class LineageUnknown(PartitionError):
    """The local log cannot be shown to continue the archived one.

    `archived_end_offset`: where that one ends (exclusive); None where no single archive is meant.
    """

    def __init__(self, what: str, *, archived_end_offset: int | None = None) -> None:
        super().__init__(what)
        self.archived_end_offset = archived_end_offset


class CommitRefused(PartitionError):
    """The actions of a commit break a rule of the archive: overlap, unknown segment, lower generation, another topic."""


class StagingTooSmall(PartitionError):
    """The work files of one segment would take more than `compaction.max_staging_bytes`: the partition is not compacted."""


class StagingFull(SidecarError):
    """No room left in the staging directory."""

    exit_code = 3
    retryable = True


class CompactionCutOff(SidecarError):
    """The settings changed or the process stops. No commit was sent for what was not committed yet."""

    def __init__(self) -> None:
        super().__init__("cut off: the settings changed, or the process stops; nothing more was committed")


class CompactionCrashed(SidecarError):
    """A fault of our own while partitions were compacted; the log has its traceback."""


class VerificationMismatch(SidecarError):
    """Stored objects differ from what their commit says."""

    exit_code = 4


class BrokerTrouble(Flag):
    """Why a broker does not answer, by what a person has to change. Several servers may have several troubles."""

    NO_ANSWER = auto()
    WRONG_LISTENER = auto()
    BROKER_CERTIFICATE = auto()
    IDENTITY_REFUSED = auto()
    SECRET_UNREADABLE = auto()
    NOT_A_MEMBER = auto()
    OTHER = auto()


class BrokerUnavailable(SidecarError):
    """The local broker does not respond, or refuses this client: the partitions that it leads are unknown now."""

    retryable = True

    def __init__(self, what: str, trouble: BrokerTrouble = BrokerTrouble.NO_ANSWER) -> None:
        super().__init__(what)
        self.trouble = trouble


class StaleLeadership(BrokerUnavailable):
    """A broker answered, and has not learned of the newest leader election yet."""


class Fenced(SidecarError):
    """A writer with a higher leader epoch has committed to this partition."""

    exit_code = 5


class StoreError(SidecarError):
    """The object store failed."""

    exit_code = 6


class StoreUnavailable(StoreError):
    """No answer, a server error, or throttling.

    `is_answered`: the store itself said that it takes no more for now.
    """

    retryable = True
    is_answered = False

    def after(self, attempts: int) -> "StoreUnavailable":
        """The same, with how often the store was asked."""
        error = type(self)(f"{self} ({attempts} attempts)" if attempts > 1 else str(self))
        error.is_answered = self.is_answered
        return error


class OutcomeUnknown(StoreError):
    """A put timed out or was reset: it may have happened. Read back before deciding."""

    retryable = True


class StoreDenied(StoreError):
    """Credentials or permissions."""


class ObjectFrozen(StoreDenied):
    """The object is there, in a storage class without immediate reads."""

    advice: ClassVar[str] = (
        "the object's storage class has no immediate reads: have the store restore it first (RestoreObject)"
    )


class StoreUnsafe(StoreError):
    """The store lacks something the commit protocol needs."""


class TwoWriters(StoreUnsafe):
    """The store confirmed two create-only puts of one key: commits of two writers would overwrite each other."""


class StoreUnsupported(StoreError):
    """The store does not offer this function, whoever asks and however often."""


class StoreMissing(StoreError):
    """The archive's bucket or directory does not exist."""


class ObjectExists(StoreError):
    """A create-only put found the key taken."""


class ObjectMissing(StoreError):
    """No object under this key."""


class ObjectDamaged(StoreError):
    """Size or checksum of a stored object differs from what was sent."""


OF_ONE_PARTITION: Final = (PartitionError, ObjectFrozen)
"""What an object raises that stops its partition, and no other."""

FROM_STORE: Final = (StoreError, SettingsError)
"""All that a request to a store raises: a redirect, or a name that does not exist, is SettingsError."""
