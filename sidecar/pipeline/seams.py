"""Where a partition's archive goes on: the lineage that its topic id names, or whose batches the local log still has."""

from __future__ import annotations

import numpy as np

from sidecar.archive.lineage import choose_lineage, relevant
from sidecar.archive.seam import LocalLog, Probe, Seam, judge_seam, probes
from sidecar.archive.state import PartitionState
from sidecar.errors import CorruptFile, PartitionError
from sidecar.logformat.batches import scan_file
from sidecar.logformat.checkpoints import read_offset_checkpoint
from sidecar.logformat.leader_epochs import LeaderEpochs, read_leader_epochs
from sidecar.model import PartitionFiles
from sidecar.pipeline.commit_log import CommitLog
from sidecar.pipeline.lineages import find_lineages
from sidecar.pipeline.tools import Tools


def open_lineage(tools: Tools, files: PartitionFiles) -> tuple[CommitLog, PartitionState, str | None]:
    """The commit log to append to, its state, and the topic id that the next commit must adopt, if any.

    Raises LineageUnknown, CorruptFile, StoreError.
    """
    cluster_id = tools.facts.cluster_id()
    lineages = relevant(find_lineages(tools.store, cluster_id, files.topic_partition), files.topic_id)
    logs = {lineage: CommitLog(tools.store, lineage.root, tools.clock) for lineage in lineages}
    epochs = leader_epoch_checkpoint(files)
    choice = choose_lineage(
        cluster_id,
        files.topic_partition,
        files.topic_id,
        [log.read() for log in logs.values()],
        lambda archived: judge_local_log(files, epochs, archived),
    )
    lineage = choice.state.lineage
    commits = logs.get(lineage) or CommitLog(tools.store, lineage.root, tools.clock)
    return commits, choice.state, choice.adopt_topic_id


def leader_epoch_checkpoint(files: PartitionFiles) -> LeaderEpochs | None:
    """The partition's `leader-epoch-checkpoint`, None where it does not exist. Raises CorruptFile."""
    path = files.directory / "leader-epoch-checkpoint"
    try:
        return read_leader_epochs(path.read_bytes(), str(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PartitionError(f"{path}: cannot be read ({error.strerror}): run as the broker's user or group") from error


def judge_local_log(files: PartitionFiles, epochs: LeaderEpochs | None, archived: PartitionState) -> Seam:
    """Whether these local files continue the archived log. Reads the segments in which an archived batch should lie."""
    first = files.segments[0].base_offset if files.segments else (files.active_base_offset or 0)
    end = files.segments[-1].end_offset if files.segments else first
    may_be_cleaned = files.unstable or _cleaner_was_here(files)
    local = LocalLog(first, end, epochs.entries if epochs else (), may_be_cleaned=may_be_cleaned)
    return judge_seam(archived, local, {probe: _find(files, probe) for probe in probes(archived, local)})


def _cleaner_was_here(files: PartitionFiles) -> bool:
    """Whether the broker has compacted this partition, so that batches may have been rewritten under the same offsets."""
    path = files.log_dir / "cleaner-offset-checkpoint"
    try:
        return files.topic_partition in read_offset_checkpoint(path.read_bytes(), str(path))
    except FileNotFoundError:
        return False
    except (CorruptFile, OSError):
        return True  # Unknown is treated as yes: it only keeps a differing checksum from proving anything.


def _find(files: PartitionFiles, probe: Probe) -> int | None:
    """The checksum field of the batch that a probe asks for, None where no batch answers."""
    found: int | None = None
    for segment in files.segments:
        if segment.end_offset <= probe.base_offset or segment.base_offset >= probe.end_offset:
            continue
        for columns in scan_file(segment.log.path, base_offset=segment.base_offset, check_crc=False):
            inside = (columns.last_offset >= probe.base_offset) & (columns.last_offset < probe.end_offset)
            rows = np.flatnonzero(inside)
            if rows.size and not probe.last:
                return int(columns.crc[rows[0]])
            if rows.size:
                found = int(columns.crc[rows[-1]])
    return found
