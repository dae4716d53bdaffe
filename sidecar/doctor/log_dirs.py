"""The broker's log directories, as this process sees them. Only ever read."""

import errno
import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path

from sidecar.broker.files import FileBrokerFacts
from sidecar.clock import Clock
from sidecar.config import Settings
from sidecar.discovery.scan import ScanResult
from sidecar.doctor.findings import Check, Outcome, fine, not_checked, problem, warning
from sidecar.errors import PartitionError, SettingsError
from sidecar.logformat.files import open_regular
from sidecar.logformat.names import META_PROPERTIES, DirectoryState, parse_directory_name
from sidecar.partition.wait_reason import render
from sidecar.plurals import plural
from sidecar.reporting.advice import META_PROPERTIES_ADVICE, advice_on
from sidecar.retention.active_tail import ActiveTail
from sidecar.runner.assembly import scanner
from sidecar.runner.configured_facts import open_facts
from sidecar.runner.topic_choice import nothing_chosen

_OPENED_MAX = 2_000
"""So many files are opened at most, evenly over the partitions."""
_AHEAD_S_MAX = 60
_MINUTES_BELOW = 120
_OF_NOBODY = {"lost+found", "remote-log-index-cache"}
"""Directories that may lie in a log dir, and are no partition's."""
_AS_THE_BROKER = "run as the broker's user, or as a group that may read its files"
_CHOICE = "correct topics.include and topics.exclude; none needed if no chosen topic has a replica on this broker"
_LOG_DIRS = "set broker.log_dirs, or --log-dir, to the broker's log.dirs as this process sees them"


@dataclass(slots=True)
class _Look:
    settings: Settings
    clock: Clock
    found: ScanResult = field(default_factory=lambda: ScanResult((), ()))

    def directory(self, path: Path) -> Outcome:
        try:
            with os.scandir(path) as entries:
                names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        except PermissionError:
            return problem(f"user {os.getuid()} may not read {path}", _AS_THE_BROKER, PartitionError.exit_code)
        except (FileNotFoundError, NotADirectoryError) as error:
            return problem(f"{path}: {error.strerror}", _LOG_DIRS, SettingsError.exit_code)
        known = [name for entry in names if (name := parse_directory_name(entry)) is not None]
        if not known and not (path / META_PROPERTIES).exists():
            what = f"{path} has neither {META_PROPERTIES} nor a partition: not a Kafka log directory"
            return problem(what, _LOG_DIRS, SettingsError.exit_code)
        live = sum(name.state is DirectoryState.LIVE for name in known)
        others = sorted(set(names) - {name for name in names if parse_directory_name(name)} - _OF_NOBODY)
        detail = (
            f"{plural(live, 'partition directory', 'partition directories')}, {len(known) - live} being "
            f"moved or deleted; {_mount(path)}"
        )
        if others:
            shown = ", ".join(others[:3])
            return warning(
                f"{detail}; {plural(len(others), 'directory', 'directories')} not of the broker: {shown}",
                "they are skipped; move them away if they are not needed",
            )
        return fine(detail)

    def ids(self) -> Outcome:
        broker = self.settings.broker
        facts = FileBrokerFacts(
            broker.log_dirs, clock=self.clock, given_cluster_id=broker.cluster_id, given_broker_id=broker.broker_id
        )
        on_disk = facts.cluster_id_on_disk()
        if broker.cluster_id is not None and on_disk not in {None, broker.cluster_id}:
            return warning(
                f"broker.cluster_id is {broker.cluster_id}, {META_PROPERTIES} says {on_disk}",
                "remove the setting, unless these directories continue an archive with that id",
            )
        identity = f"broker {facts.broker_id()} of cluster {facts.cluster_id()}"
        if without := facts.files_without_ids():
            return warning(f"{identity}; no id in {', '.join(without)}", META_PROPERTIES_ADVICE)
        return fine(identity)

    def listing(self) -> Outcome:
        self.found = scanner(self.settings)()
        return fine(f"listed {plural(len(self.found.partitions), 'partition')} of the accepted topics")

    def partitions(self) -> Outcome:
        if self.found.problems:
            first = self.found.problems[0]
            more = f", and {len(self.found.problems) - 1} more" if len(self.found.problems) > 1 else ""
            return problem(f"{first.error}{more}", advice_on(first.error), first.error.exit_code)
        if not self.found.partitions:
            return self._nothing_here()
        rolled = sum(len(files.segments) for files in self.found.partitions)
        return fine(f"{len(self.found.partitions)} of the accepted topics, {plural(rolled, 'rolled segment')}")

    def checkpoints(self) -> Outcome:
        if self.settings.broker.connection.is_configured:
            return fine("the leader is asked for them")
        facts = FileBrokerFacts(self.settings.broker.log_dirs, assume_leader=True, clock=self.clock)
        rolled = [files for files in self.found.partitions if files.segments]
        reasons = [reason for files in rolled if (reason := facts.partition(files).reason) is not None]
        if reasons:
            what = f"{plural(len(reasons), 'partition')} cannot be archived: {render(reasons[0])}"
            return problem(what, exit_code=PartitionError.exit_code)
        return fine(f"the broker's checkpoint files have them for {plural(len(rolled), 'partition')}")

    def _nothing_here(self) -> Outcome:
        """What `run` and `backfill` make of it. Asks the cluster for its topics where a broker is named."""
        with open_facts(self.settings, self.clock) as facts:
            found = nothing_chosen(self.settings, facts)
        if found is None:
            return warning("no partition of the accepted topics is here yet", "none if topics will be created later")
        if found.is_slip:
            return problem(found.reason, exit_code=SettingsError.exit_code)
        return warning(found.reason, _CHOICE)

    def files(self) -> Outcome:
        logs = [files.segments[-1].log.path for files in self.found.partitions if files.segments]
        logs += [files.active_log.path for files in self.found.partitions if files.active_log is not None]
        opened = logs[:: len(logs) // _OPENED_MAX + 1]
        all_files = [
            file.path for files in self.found.partitions for segment in files.segments for file in segment.files
        ]
        for path in all_files:
            if not os.access(path, os.R_OK) and os.path.lexists(path):  # What was deleted since the listing is gone.
                return problem(f"user {os.getuid()} may not read {path}", _AS_THE_BROKER, PartitionError.exit_code)
        for path in chain(opened, filter(Path.is_symlink, all_files)):
            try:
                os.close(open_regular(path, os.O_NOFOLLOW))
            except FileNotFoundError:
                continue  # rolled away or deleted since the listing
            except OSError as error:
                advice = "" if error.errno == errno.EINVAL else _AS_THE_BROKER
                return problem(f"{path}: {error.strerror}", advice, PartitionError.exit_code)
        return fine(
            f"user {os.getuid()} may read all files of rolled segments ({len(all_files)}); logs opened: {len(opened)}"
        )

    def snapshots(self) -> Outcome:
        missing = [
            files.topic_partition
            for files in self.found.partitions
            for segment in files.segments
            if segment.snapshot is None
        ]
        if not missing:
            return fine("every rolled segment has a snapshot")
        rolled = sum(len(files.segments) for files in self.found.partitions)
        return warning(
            f"no snapshot for {len(missing)} of {plural(rolled, 'rolled segment')}, in "
            f"{plural(len(set(missing)), 'partition')} such as {missing[0]}",
            "the archive gets rebuilt snapshots. A broker's tiered storage fails on these segments: create the "
            "files with tiered-sidecar snapshots heal",
        )

    def disks(self) -> Outcome:
        by_device: defaultdict[int, list[Path]] = defaultdict(list)
        real: defaultdict[str, list[Path]] = defaultdict(list)
        for log_dir in self.settings.broker.log_dirs:
            by_device[log_dir.stat().st_dev].append(log_dir)
            real[os.path.realpath(log_dir)].append(log_dir)
        doubled = next((paths for paths in real.values() if len(paths) > 1), None)
        if doubled:
            return warning(f"{_listed(doubled)} are the same directory", "keep only one of them in broker.log_dirs")
        shared = next((paths for paths in by_device.values() if len(paths) > 1), None)
        if shared:
            return warning(
                f"{_listed(shared)} lie on one disk",
                "none for archiving: run.readers_per_disk counts disks, not directories",
            )
        return fine(f"{len(by_device)} for {len(self.settings.broker.log_dirs)} log dirs")

    def times(self) -> Outcome:
        newest_ns = max((files.active_log.mtime_ns for files in self.found.partitions if files.active_log), default=0)
        ahead_s = newest_ns / 1e9 - self.clock.now_ms() / 1000
        if ahead_s > _AHEAD_S_MAX:
            return warning(
                f"a log was last written {ahead_s:.0f} s from now",
                "correct this machine's clock, or that of the file server",
            )
        return fine("no file has a time in the future")

    def idle(self) -> Outcome:
        """What never rolls, and is not archived for that."""
        with open_facts(self.settings, self.clock) as facts:
            facts.refresh()
            topics = {files.topic_partition.topic for files in self.found.partitions}
            if not any(facts.policy(topic).is_retention_known for topic in topics):
                return not_checked("the topics' retention is unknown")
            led = [files for files in self.found.partitions if facts.partition(files).leads]
            # When retention deletes the active segment; what is archived is not asked.
            deadlines = {f.topic_partition: ActiveTail(facts, self.clock).deadline_ms(f, None, None) for f in led}
        found = sorted((deadline_ms, tp) for tp, deadline_ms in deadlines.items() if deadline_ms is not None)
        if not found:
            return fine("no idle active segment is near its retention")
        deadline_ms, first = found[0]
        return warning(
            f"idle active segments, which do not roll: {len(found)}. `run` archives such a segment only when retention "
            f"deletes it, from its pinned file. The first, of {first}, is due "
            f"{_left(deadline_ms - self.clock.now_ms())}",
            "write a record to the partition now: this delays it by retention.ms. Then set segment.ms of the topic "
            "well below its retention.ms, so that the next record after segment.ms rolls it; or raise retention.ms",
        )


def _left(left_ms: int) -> str:
    if left_ms <= 0:
        return "any moment"
    left_minutes = -(-left_ms // 60_000)
    return f"in {left_minutes} min" if left_minutes < _MINUTES_BELOW else f"in {left_ms / 3_600_000:.1f} h"


def _mount(path: Path) -> str:
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        return "mounted read-only"
    if os.access(path, os.W_OK):
        return "writable by this process, which never writes there"
    return "not writable by this process"


def _listed(paths: Sequence[Path]) -> str:
    return " and ".join(map(str, paths))


def log_dir_checks(settings: Settings, clock: Clock) -> list[Check]:
    if not settings.broker.log_dirs:
        return [Check("log dirs", lambda: problem("none given", _LOG_DIRS, SettingsError.exit_code))]
    look = _Look(settings, clock)
    named = [Check(str(path), partial(look.directory, path)) for path in dict.fromkeys(settings.broker.log_dirs)]
    everywhere = tuple(check.name for check in named)
    return [
        *named,
        Check("ids in meta.properties", look.ids, everywhere),
        Check("disks", look.disks, everywhere),
        Check("listing", look.listing, everywhere),
        # One partition that cannot be read hides nothing of the others.
        Check("partitions", look.partitions, ("listing",)),
        Check("files can be read", look.files, ("listing",)),
        Check("stable offsets", look.checkpoints, ("files can be read",)),
        Check("producer snapshots", look.snapshots, ("listing",)),
        Check("times of files", look.times, ("listing",)),
        Check("idle logs", look.idle, ("listing",)),
    ]
