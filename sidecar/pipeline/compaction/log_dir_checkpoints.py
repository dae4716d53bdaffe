"""What a broker's log dir says of a partition beside its directory."""

from __future__ import annotations

from sidecar.errors import PartitionError
from sidecar.logformat.checkpoints import read_offset_checkpoint
from sidecar.model import PartitionFiles


def offset_in(checkpoint: str, files: PartitionFiles) -> int | None:
    """The partition's offset in a checkpoint file of its log dir; None where there is none, as beside a copy.

    Raises CorruptFile, PartitionError.
    """
    path = files.directory.parent / checkpoint
    try:
        return read_offset_checkpoint(path.read_bytes(), str(path)).get(files.topic_partition)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PartitionError(f"{path}: cannot be read: {error.strerror}") from error
