"""What a person reads of damaged and unreadable files, and of lost offsets: said once, where it is shown."""

import errno
from typing import TYPE_CHECKING

from sidecar.archive.actions import LossReason
from sidecar.archive.keys import CHECKPOINTS, COMMITS, INDEXES_SUFFIX, SEGMENTS
from sidecar.errors import CommitRefused, CorruptFile, SidecarError
from sidecar.logformat.names import LEADER_EPOCH_CHECKPOINT, META_PROPERTIES, PARTITION_METADATA, Suffix

if TYPE_CHECKING:
    from sidecar.partition.domain_events import OffsetsLost

_OBJECT = "restore the object from a replica of the bucket or an earlier version; then the partition continues"
META_PROPERTIES_ADVICE = "restore it from a backup, or from the pattern of the broker's other log dirs"
_BY_PART_OF_NAME = (
    (f"/{COMMITS}", _OBJECT),
    (
        f"/{CHECKPOINTS}",
        "delete it if verify --deep finds nothing else: a checkpoint only saves time, and the commits have the same state",
    ),
    (f"/{SEGMENTS}", _OBJECT),
    (INDEXES_SUFFIX, _OBJECT),
    (f".{Suffix.LOG}", "restore it from a replica of the partition; then the partition continues"),
    (
        f".{Suffix.SNAPSHOT}",
        "stop the broker and run `tiered-sidecar snapshots heal --replace-corrupt`, which rebuilds it from the log",
    ),
    (LEADER_EPOCH_CHECKPOINT, "restore it from a replica of the partition"),
    (
        "-offset-checkpoint",
        "a running broker rewrites it within a minute; for a stopped one restore it from a backup",
    ),
    (META_PROPERTIES, META_PROPERTIES_ADVICE),
    (PARTITION_METADATA, "restore it from a replica of the partition"),
)
_INDEXES = "stop the broker and delete it: at its start the broker rebuilds it from the log"
_PERMISSION = (
    "run as the file's owner (for a broker's files: the broker's user), or give this process's user the permission"
)
_BY_OS_ERROR = {
    errno.EACCES: _PERMISSION,
    errno.EPERM: _PERMISSION,
    errno.EIO: "check the disk and the system log",
    errno.ENOENT: "correct the path, or mount its disk",
    errno.ENOTDIR: "correct the path, or mount its disk",
    errno.ENOSPC: "free space there",
    errno.EDQUOT: "free space there, or raise the quota",
    errno.EROFS: "mount the file system read-write",
    errno.EMFILE: "raise the open-file limit of the process (ulimit -n, or LimitNOFILE of its systemd unit)",
    errno.ENFILE: "raise the machine's limit of open files (sysctl fs.file-max)",
    errno.ESTALE: "check the mount of the network file system",
}
_REFUSED = "the archive is unchanged; another program writes to it, or somebody edited it: run `tiered-sidecar verify`"
_INDEX_SUFFIXES = (f".{Suffix.OFFSET_INDEX}", f".{Suffix.TIME_INDEX}", f".{Suffix.TRANSACTION_INDEX}")


def loss_reason(event: "OffsetsLost") -> str:
    is_first = "" if event.is_recorded else "; the partition had no archive before, so its archive begins above them"
    return f"{LossReason.NOT_ON_DISK}{is_first}"


def noted(error: SidecarError, text: str = "") -> str:
    """The error's text, or the one given instead, and its notes (`add_note`): what the failure left behind."""
    return ". ".join((text or str(error), *getattr(error, "__notes__", ())))


def advised(error: SidecarError) -> str:
    """The error's text, and what to do where it does not say so. Its notes come last."""
    text, advice = str(error), advice_on(error)
    return noted(error, f"{text}; {advice}" if advice else text)


def advice_on(error: SidecarError) -> str:
    """What to do about damaged bytes, a refused commit or a failed system call; "" where the error says so itself."""
    if isinstance(error, CorruptFile):
        return _advice_on_file(error.file.partition(", ")[0]) if error.file and not error.advice else ""
    if isinstance(error, CommitRefused):
        return _REFUSED
    return _advice_on_system_call(str(error), error.system_call)


def finding(error: CorruptFile) -> str:
    """As `advised`, without the file's name: for where that is shown separately."""
    text = advised(error)
    return text.removeprefix(error.file).lstrip(":, ") if error.file else text


def _advice_on_system_call(text: str, failed: tuple[int, str] | None) -> str:
    # A text that ends in the system's own words has nothing to do after them. Some have them in parentheses.
    if failed is None or not text.rstrip(")").endswith(failed[1]):
        return ""
    return _BY_OS_ERROR.get(failed[0], "")


def _advice_on_file(file: str) -> str:
    for part, advice in _BY_PART_OF_NAME:
        if part in file:
            return advice
    return _INDEXES if file.endswith(_INDEX_SUFFIXES) else ""
