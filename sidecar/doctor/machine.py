"""What this machine, or this container, gives us: places to write to, descriptors, memory."""

import os
import resource
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from sidecar.compactor.before_upload import GROUP_SEGMENTS_MAX
from sidecar.config import CompactionWhen, Settings
from sidecar.doctor.findings import Check, Outcome, fine, not_checked, problem, warning
from sidecar.errors import SettingsError, StagingFull
from sidecar.host.journal import NO_ROOM
from sidecar.host.limits import allowed_open_files, memory_limit_bytes, processors
from sidecar.host.pinned_files import HELD_FEW
from sidecar.model import EngineName
from sidecar.ports import MIB

MOUNTS_FILE = Path("/proc/self/mountinfo")
_EMPTY_DIR = "kubernetes.io~empty-dir"
"""Part of where the kubelet has such volumes on the node."""
_WORK_BASE_BYTES = 1024 * MIB
_INODES_MIN = 100
_BASE_BYTES = 256 * MIB
"""What the sidecar takes without uploads: Python, boto3, numba's kernels, and windows of segments being read."""
_CONNECTIONS = 64
_FILES_PER_SEGMENT = 8
_JVM_BESIDES_HEAP_BYTES = 384 * MIB
"""What a JVM takes besides its heap. Measured, as are the others: docs/reference/sizing.md."""
_WORKER_BYTES = 320 * MIB
"""A Python process of Spark's, where nothing limits it."""


def _place(setting: str, path: Path, needed_bytes: int, wanted_bytes: int) -> Outcome:
    """A directory of ours. Less than `needed_bytes` is a problem, less than `wanted_bytes` a warning."""
    named = str(path)
    try:
        above = next(each for each in (path, *path.parents) if each.exists())
        named = named if above == path else f"{path} (to be created below {above})"
        with tempfile.TemporaryFile(dir=above):
            pass
    except OSError as error:
        advice = f"set {setting} to a directory that user {os.getuid()} may write to"
        if isinstance(error, NotADirectoryError):
            advice = f"set {setting} to a directory"
        kind = StagingFull if error.errno in NO_ROOM else SettingsError
        return problem(f"{named} cannot be written to: {error.strerror}", advice, kind.exit_code)
    found = os.statvfs(above)
    free_bytes = found.f_bavail * found.f_frsize
    detail = f"{named}: {free_bytes // MIB} MiB free"
    advice = f"free space there, or set {setting} to another disk"
    # File systems without a fixed number of inodes tell 0 of 0.
    if found.f_files and found.f_favail < _INODES_MIN:
        return problem(f"{named}: {found.f_favail} inodes free", advice, StagingFull.exit_code)
    if free_bytes < needed_bytes:
        return problem(f"{detail}, at least {needed_bytes // MIB} MiB are needed", advice, StagingFull.exit_code)
    if free_bytes < wanted_bytes:
        return warning(f"{detail}, {wanted_bytes // MIB} MiB may be needed", advice)
    return fine(detail)


def _places(settings: Settings) -> Iterator[tuple[str, Path, int, int]]:
    yield "run.state_dir", settings.run.state_path, 16 * MIB, 128 * MIB
    compaction = settings.compaction
    if compaction.is_active:
        yield "compaction.staging_dir", compaction.staging_path, 256 * MIB, compaction.staging_bytes


def _descriptors(settings: Settings) -> Outcome:
    soft, hard = allowed_open_files(), resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    in_work = settings.run.workers * settings.run.uploads_ahead * _FILES_PER_SEGMENT
    if _compacts_before_upload(settings):
        # Of a group the log and the copy of each segment are open.
        in_work += settings.run.workers * 2 * GROUP_SEGMENTS_MAX
    needed = 4 * HELD_FEW if in_work < HELD_FEW else HELD_FEW + in_work + _CONNECTIONS
    minimum = in_work + settings.store.s3.concurrency + settings.http.max_connections + _CONNECTIONS
    detail = f"{soft} file descriptors can be open"
    raise_it = f"raise the limit (ulimit -n, LimitNOFILE; up to {hard} here)"
    if soft < minimum:
        return problem(f"{detail}, uploads alone need {minimum}", raise_it, SettingsError.exit_code)
    if soft < needed:
        return warning(f"{detail}: fewer than {HELD_FEW} segments are pinned against retention", raise_it)
    return fine(detail)


def memory_needed_bytes(settings: Settings, cores: int) -> int:
    """What these settings may come to: parts in flight, the JVM of compaction, and its workers unless a cluster has them.

    The chart reckons the same (helm/tiered-sidecar-lib/templates/_memory.tpl), a test compares.
    """
    needed = _BASE_BYTES + settings.store.s3.part_bytes * settings.store.s3.concurrency
    if uses_spark(settings):
        spark = settings.spark
        needed += spark.driver_memory_bytes + _JVM_BESIDES_HEAP_BYTES
        if spark.is_local:
            asked = spark.master.removeprefix("local").strip("[]").split(",")[0]
            workers = cores if asked == "*" else int(asked) if asked.isdecimal() else 1
            needed += workers * (spark.worker_memory_bytes or _WORKER_BYTES)
    return needed


def work_needed_bytes(settings: Settings) -> int:
    """What work files may take: what may wait in staging, one job of copies of `before_upload`, one that Spark exchanges.

    The chart reckons the same (helm/tiered-sidecar-lib/templates/_work.tpl), a test compares.
    """
    compaction = settings.compaction
    if not compaction.is_active:
        return _WORK_BASE_BYTES
    jobs = _compacts_before_upload(settings) + uses_spark(settings)
    return _WORK_BASE_BYTES + compaction.staging_bytes + jobs * compaction.max_job_bytes


def _compacts_before_upload(settings: Settings) -> bool:
    compaction = settings.compaction
    whens = (compaction.when if entry.when is None else entry.when for entry in compaction.topics)
    return compaction.is_active and CompactionWhen.BEFORE_UPLOAD in whens


def _volume(settings: Settings) -> Outcome:
    """Whether compaction may overrun a volume whose size the kubelet enforces by evicting the pod."""
    compaction = settings.compaction
    if not compaction.is_active:
        return fine("nothing is compacted")
    path = compaction.staging_path.resolve()
    try:
        lines = [line.split() for line in MOUNTS_FILE.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        return not_checked(f"{MOUNTS_FILE} cannot be read: {error}")
    # Fields 4 and 5, see proc_pid_mountinfo(5): the root of the mount within its file system, and where it is mounted.
    above = [(mount[4], mount[3]) for mount in lines if len(mount) > 4 and path.is_relative_to(mount[4])]
    where, root = max(above, key=lambda mount: len(mount[0]), default=("", ""))
    if _EMPTY_DIR not in root:
        return fine(f"{path} is not in an emptyDir")
    return warning(
        f"{path} is in {where}, an emptyDir. When it exceeds its sizeLimit, or the node's disk fills, the kubelet "
        f"evicts the whole pod, the broker included. Work files may take {work_needed_bytes(settings) // MIB} MiB. "
        "For a partition larger than compaction.max_job_bytes Spark may need more",
        "give it its own volume (sidecar.workVolume of the chart), or make sure that sizeLimit and node have "
        "that much space",
    )


def uses_spark(settings: Settings) -> bool:
    return settings.spark.engine is EngineName.SPARK or (
        settings.compaction.is_active and settings.spark.engine is not EngineName.LOCAL
    )


def _memory(settings: Settings) -> Outcome:
    limit = memory_limit_bytes()
    if limit is None:
        return not_checked("no memory limit is set for this container, or none can be read")
    needed = memory_needed_bytes(settings, processors())
    detail = f"limit {limit // MIB} MiB, these settings may take {needed // MIB} MiB"
    if limit < needed:
        smaller = "store.s3.concurrency, store.s3.part_bytes"
        if uses_spark(settings):
            smaller += ", spark.driver_memory_bytes, spark.master: local[1]"
        return warning(detail, f"raise the container's limit, or lower {smaller}")
    return fine(detail)


def machine_checks(settings: Settings) -> list[Check]:
    return [
        *(Check(place[0], partial(_place, *place)) for place in _places(settings)),
        Check("file descriptors", partial(_descriptors, settings)),
        Check("memory", partial(_memory, settings)),
        Check("work volume", partial(_volume, settings)),
    ]
