"""`snapshots heal`: gives a stopped broker the producer snapshots that its own tiering needs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

from sidecar.broker.log_dir_state import LogDirState, read_log_dir_state
from sidecar.config.topic_filter import TopicFilter
from sidecar.discovery.scan import distinct
from sidecar.engine_ports import TaskEngine
from sidecar.errors import SettingsError
from sidecar.host.log_dir_lock import LogDirLock, LogDirRefused
from sidecar.host.placing import remove_leftovers
from sidecar.logformat.names import parse_directory_name
from sidecar.reporting.progress import Watcher
from sidecar.snapshots import Replay
from sidecar.snapshots.folding import fold
from sidecar.snapshots.heal_plan import Healing, HealPlan, HealReport, plan_healing
from sidecar.snapshots.healer import Healer, HealWriter
from sidecar.snapshots.jobs import Forgetting, PartitionJob
from sidecar.snapshots.targets import NO_TOPIC, holds_segments, log_dir_targets

_BARE: Final = (
    "there is no snapshot: a broker that starts would write an empty one and forget all producers. heal creates "
    "one at the log's end if the log names any producer"
)


def heal(
    log_dirs: Sequence[Path],
    topics: TopicFilter,
    engine: TaskEngine,
    forgetting: Forgetting,
    *,
    dry_run: bool = False,
    replace_empty: bool = False,
    replace_corrupt: bool = False,
    replay: Replay = Replay.WINDOW,
    compacted_elsewhere: TopicFilter = NO_TOPIC,
    watcher: Watcher | None = None,
) -> HealReport:
    """Create the missing `<base>.snapshot` files in the log dirs of a stopped broker; nothing else is touched.

    Where no snapshot would exist at all, as none is missing, one is made at the log's end if the log names producers.

    Replay.FULL judges every snapshot that is there; Replay.WINDOW reads what the new ones need, and judges those on its way.

    Holds Kafka's lock of every log dir meanwhile. Whatever ends it, each file is there whole or not at all; the next run
    goes on.

    Raises:
        LogDirRefused: nothing was written: a log dir may not be written to, or its log-start-offset-checkpoint cannot be read.
        SettingsError: a log dir does not exist, or is a partition's directory, or the patterns choose no partition.

    Args:
        dry_run: only plan; with `replace_empty` the log is read to judge what is there.
        replace_empty: also replace empty snapshots that hide producers whom a broker must know now.
        replace_corrupt: also replace files that are no snapshots.
        compacted_elsewhere: topics in whose logs offsets may be missing, whatever their directory says.
    """
    for path in log_dirs:
        _refuse_partition_directory(path)
    with ExitStack() as resources:
        # Where one directory were locked under two names, closing one lock of the process would end the other.
        locks = {path: resources.enter_context(LogDirLock(path, read_only=dry_run)) for path in distinct(log_dirs)}
        found = log_dir_targets(list(locks), topics, compacted_elsewhere)
        # A broker that is new has no partitions, and its init container must end well; a pattern that fits none is a mistake.
        if topics != TopicFilter() and not found.partitions and not found.problems:
            raise SettingsError(
                f"{', '.join(map(str, log_dirs))}: no partition to heal: --topic and --exclude leave none "
                f"(internal topics are never included)"
            )
        states = {path: _state_of(path) for path in locks}
        replayed = replace_empty or not dry_run
        healings: list[Healing] = []
        for log in found.partitions:
            healing = Healing(HealPlan(log))
            healings.append(healing)
            with healing.noting_problem():
                log_start = states[log.files.log_dir].log_start.offset(log.topic_partition)
                healing.plan = plan_healing(
                    log, log_start, replace_empty=replace_empty, replace_corrupt=replace_corrupt, replayed=replayed
                )
                healing.note = _BARE if healing.plan.bare and not replayed else ""
            if not dry_run:
                with healing.noting_problem():
                    remove_leftovers(log.files.directory)
        work: list[tuple[Healing, PartitionJob]] = []
        for healing in healings if replayed else ():
            with healing.noting_problem():
                job = healing.plan.job(replay, forgetting)
                work += [(healing, job)] if job.boundaries else []
        with HealWriter(locks) as writer:
            writing = None if dry_run else writer
            healers = [
                (resources.enter_context(closing(Healer(healing, forgetting, writing))), job) for healing, job in work
            ]
            for healer, event in fold(healers, engine, watcher):
                healer.take(event)
            writer.finish()
    return HealReport(tuple(healings), found.problems, dry_run, replay, found.warnings)


def _refuse_partition_directory(path: Path) -> None:
    try:
        if not path.is_dir():
            raise SettingsError(f"{path}: no such directory; give one of the broker's log.dirs")
        inside = holds_segments(path)
    except OSError:
        return  # Taking its lock gives a better error.
    if inside:
        name = parse_directory_name(path.absolute().name)
        only = f", with --topic {re.escape(name.topic_partition.topic)} to heal only that topic" if name else ""
        raise SettingsError(
            f"{path}: is a partition's directory; give heal its log directory, {path.absolute().parent}{only}"
        )


def _state_of(log_dir: Path) -> LogDirState:
    state = read_log_dir_state(log_dir)
    if state.log_start.error is not None:
        # It is unknown which snapshots a broker would delete, and which it needs.
        raise LogDirRefused(
            f"{state.log_start.error}; nothing was written. A broker that cannot read this file takes the first "
            "segment of each log for the log start. Correct the file, or move it away if that is acceptable"
        )
    return state
