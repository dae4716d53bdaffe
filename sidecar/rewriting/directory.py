"""`compact DIR`: a partition's directory with fewer records, in Kafka's own file names, complete or not there at all."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from producer_state.table import ProducerTable
from sidecar.compaction.last_batches import LastBatches
from sidecar.compaction.rules import CompactionRules
from sidecar.compaction.segments import SPLIT_BYTES
from sidecar.compaction_strategy import Strategy
from sidecar.discovery.partition_directory import require_elsewhere
from sidecar.engine_ports import StageEngine
from sidecar.errors import SettingsError
from sidecar.logformat.batches import scan_file
from sidecar.logformat.files import cannot_be_written
from sidecar.logformat.indexes.rebuild import IndexBuilder
from sidecar.logformat.names import (
    CLEANER_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_CHECKPOINT,
    PARTITION_METADATA,
    Suffix,
    file_name,
)
from sidecar.model import PartitionFiles
from sidecar.rewriting.job import CompactionFigures, CompactionJob, LogFile
from sidecar.rewriting.run import required, rewritten, scanned
from sidecar.rewriting.segment_files import write_indexes, write_segment
from sidecar.rewriting.survey import Survey, survey
from sidecar.rewriting.what_if import Outlook, what_if
from sidecar.rewriting.work_files import (
    LocalParts,
    copy_file,
    sync_file,
    write_file,
)
from sidecar.snapshots.disk_partition import checkpointed
from sidecar.snapshots.jobs import Forgetting
from sidecar.spark.scratch import Scratch
from sidecar.storage.directory_store import sync_directory

_WRITERS: Final = 2
"""Threads that copy and write while others compute: one computes while the other waits for the disk."""


@dataclass(frozen=True, slots=True)
class Compaction(CompactionFigures[LogFile]):
    """What came of a directory. `left_alone`: the segments behind the compacted ones, copied as they are.

    `out` is None where nothing was to be written.
    """

    survey: Survey
    left_alone: tuple[LogFile, ...]
    out: Path | None


def compact_directory(
    files: PartitionFiles,
    out: Path | None,
    rules: CompactionRules,
    engine: StageEngine,
    forgetting: Forgetting,
    *,
    hash_key: bytes,
    include_active: bool = False,
    split_bytes: int = SPLIT_BYTES,
) -> Compaction:
    """Compact all segments that are rolled and decided, and write the directory `out`, absent or empty before.

    Nothing is there under that name until everything is, on the disk. `out` None: only what would come of it.
    Raises SettingsError for an `out` that cannot be, PartitionError and its kinds for a partition that stays as it is,
    StagingFull, and what the engine raises.
    """
    if out is not None:
        _require_free(files, out)
    with Scratch(None if out is None else out.parent, "compact") as work, ExitStack() as done:
        writers = ThreadPoolExecutor(_WRITERS, thread_name_prefix="write")
        done.callback(writers.shutdown, cancel_futures=True)
        parts, directory = LocalParts(work / "parts"), work / "partition"
        with cannot_be_written(work):
            parts.directory.mkdir()
            directory.mkdir()
        surveyed = survey(files, forgetting, directory, split_bytes=split_bytes)
        count = surveyed.compactable(include_active=include_active)
        left_alone = surveyed.segments[count:]
        compaction = Compaction(surveyed, left_alone, out)
        copies = [writers.submit(_copy_segment, surveyed, file, directory) for file in left_alone if out is not None]
        if count:
            with scanned([compaction_job(surveyed, count, rules, hash_key, directory)], engine) as run:
                found = required(run.results[0])
                outputs = required(rewritten(run, None if out is None else parts)[0])
            compaction = Compaction(surveyed, left_alone, out, outputs=outputs, **found.figures())
        if out is not None:
            written = [
                *copies,
                *(writers.submit(write_segment, directory, parts, found) for found in compaction.outputs),
            ]
            for file in written:
                file.result()
            _write_small_files(compaction, directory)
            with cannot_be_written(out):
                directory.replace(out)
                sync_directory(out.parent)
    return compaction


def forecast(
    files: PartitionFiles,
    strategies: Iterable[Strategy],
    rules: CompactionRules,
    engine: StageEngine,
    forgetting: Forgetting,
    *,
    hash_key: bytes,
    include_active: bool = False,
    split_bytes: int = SPLIT_BYTES,
) -> tuple[Outlook, ...]:
    """What these strategies would do to the directory; none where nothing may be compacted. Raises as `compact_directory`."""
    with Scratch(None, "compact") as work:
        surveyed = survey(files, forgetting, work, split_bytes=split_bytes)
        count = surveyed.compactable(include_active=include_active)
        if not count:
            return ()
        return tuple(what_if(compaction_job(surveyed, count, rules, hash_key, work), strategies, engine))


def compaction_job(
    surveyed: Survey, count: int, rules: CompactionRules, hash_key: bytes, staging: Path
) -> CompactionJob[LogFile]:
    """The job for the first `count` segments; `staging` is where the survey left the snapshots."""
    end_offset = surveyed.segments[count - 1].end_offset
    snapshot = (staging / file_name(end_offset, Suffix.SNAPSHOT)).read_bytes()
    producers = LastBatches.of(ProducerTable.from_snapshot(end_offset, snapshot))
    log_dir, topic_partition = surveyed.files.log_dir, surveyed.files.topic_partition
    return CompactionJob(
        surveyed.segments[:count],
        surveyed.pieces[:count],
        surveyed.completed,
        rules,
        producers,
        hash_key,
        start_offset=checkpointed(log_dir / LOG_START_CHECKPOINT).get(topic_partition, 0),
        first_dirty_offset=checkpointed(log_dir / CLEANER_CHECKPOINT).get(topic_partition),
    )


def _copy_segment(surveyed: Survey, file: LogFile, directory: Path) -> None:
    """A segment as it is, with indexes built from it. Raises CorruptFile, and what `copy_file` raises.

    The indexes of an active segment end in zeros, which a broker takes for entries: by the last one, retention deletes the segment.
    """
    copy, builder = directory / file.path.name, IndexBuilder(file.base_offset)
    copy_file(file.path, copy, file.size_bytes)
    for columns in (scanner := scan_file(copy, base_offset=file.base_offset, file=str(file.path))):
        builder.add(columns)
    scanner.require_exact()
    write_indexes(directory, file.base_offset, builder.finish(surveyed.ended_in(file)), file.mtime_ns)


def _write_small_files(compaction: Compaction, directory: Path) -> None:
    """What belongs to no segment. Of the snapshots, which the survey wrote, those go at whose offset no segment ends."""
    source = compaction.survey.files.directory
    ends = {output.end_offset for output in compaction.outputs} | {file.end_offset for file in compaction.left_alone}
    for segment in compaction.survey.segments:
        if segment.end_offset not in ends:
            (directory / file_name(segment.end_offset, Suffix.SNAPSHOT)).unlink()
        else:
            sync_file(directory / file_name(segment.end_offset, Suffix.SNAPSHOT))
    first = compaction.survey.segments[0].base_offset
    if first not in ends:
        _copy_if_there(source / file_name(first, Suffix.SNAPSHOT), directory)
    _copy_if_there(source / PARTITION_METADATA, directory)
    # Never made from compacted batches: those of an epoch may all be gone.
    if not _copy_if_there(source / LEADER_EPOCH_CHECKPOINT, directory):
        write_file(directory / LEADER_EPOCH_CHECKPOINT, [compaction.survey.batch_epochs.to_text()])
    with cannot_be_written(directory):
        sync_directory(directory)


def _copy_if_there(path: Path, directory: Path) -> bool:
    if path.exists():
        copy_file(path, directory / path.name, path.stat().st_size)
        return True
    return False


def _require_free(files: PartitionFiles, out: Path) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise SettingsError(f"--out {out} exists and is not an empty directory: name one that does not exist yet")
    if out.is_mount():
        raise SettingsError(f"--out {out} is a mount point, which cannot be replaced: name a directory in it")
    require_elsewhere(out, [files.directory])
    with Scratch(out.parent, "compact", unless_full=SettingsError):
        pass
