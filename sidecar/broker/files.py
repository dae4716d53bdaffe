"""Facts about a broker from its log dirs alone: for brokers that are stopped, or that may not be queried."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TypeVar

from sidecar.broker.log_dir_state import LogDirState, read_file, read_log_dir_state
from sidecar.broker.topic_configs import resolve_policy
from sidecar.clock import Clock, SystemClock
from sidecar.config.topic_policy import TopicPolicySettings
from sidecar.errors import CorruptFile, LogDirsUnformatted, SettingsError
from sidecar.logformat.headers import NO_LEADER_EPOCH
from sidecar.logformat.leader_epochs import read_leader_epochs
from sidecar.logformat.metadata_files import MetaProperties
from sidecar.logformat.names import LEADER_EPOCH_CHECKPOINT, META_PROPERTIES
from sidecar.model import PartitionFiles
from sidecar.partition.facts import PartitionFacts
from sidecar.partition.wait_reason import NotCheckpointed, OutsideLogDirs, Wait, WaitReason
from sidecar.ports import FactsState
from sidecar.topic_policy import TopicPolicy

Value = TypeVar("Value", str, int)


@dataclass(eq=False)
class FileBrokerFacts:
    """Implements `ports.BrokerFacts` from `meta.properties`, the checkpoint files and the leader epoch checkpoints.

    Checkpoints are lower bounds as of up to a minute ago, so what they call stable is stable. A partition is stable up to
    its high watermark and its recovery point, whichever is lower; without either of the files nothing is. An open
    transaction may lower that further: only replay sees it.
    `policies`: may change meanwhile. `given_cluster_id`, `given_broker_id`: count instead of those in `meta.properties`.
    """

    log_dirs: Sequence[Path]
    _: KW_ONLY
    assume_leader: bool = False
    policies: Sequence[TopicPolicySettings] = ()
    clock: Clock = field(default_factory=SystemClock)
    given_cluster_id: str | None = None
    given_broker_id: int | None = None
    _read_ms: int | None = field(default=None, init=False)
    _states: dict[Path, LogDirState] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        """Reads all log dirs. Raises SettingsError for a malformed `meta.properties`."""
        self.refresh()

    def refresh(self) -> None:
        """Read the files of the log dirs again. Raises SettingsError if one has a malformed `meta.properties`."""
        try:
            self._states = {log_dir: read_log_dir_state(log_dir) for log_dir in self.log_dirs}
        except CorruptFile as error:
            raise SettingsError(f"{error}; is this a broker's log dir?") from error
        self._read_ms = self.clock.now_ms()

    def state(self) -> FactsState:
        return FactsState(self._read_ms)

    def policy(self, topic: str) -> TopicPolicy:
        """See `BrokerFacts`. Files say nothing of configurations: only what the operator says is known."""
        return resolve_policy(topic, {}, {}, self.policies)

    def cluster_id_on_disk(self) -> str | None:
        """The cluster id, None if no log dir has one. Raises SettingsError where they disagree."""
        with suppress(LogDirsUnformatted):
            return self._agreed("cluster id", lambda meta: meta.cluster_id)
        return None

    def cluster_id(self) -> str:
        """The given one, or that on which all log dirs agree. Raises SettingsError, LogDirsUnformatted where none has one."""
        given = self.given_cluster_id
        return self._agreed("cluster id", lambda meta: meta.cluster_id) if given is None else given

    def broker_id(self) -> int:
        """The given one, or that on which all log dirs agree. Raises SettingsError, LogDirsUnformatted where none has one."""
        given = self.given_broker_id
        return self._agreed("broker id", lambda meta: meta.broker_id) if given is None else given

    def _agreed(self, what: str, value_of: Callable[[MetaProperties], Value | None]) -> Value:
        known = ((state.log_dir, value_of(state.meta)) for state in self._states.values() if state.meta)
        values = {log_dir: value for log_dir, value in known if value is not None}
        distinct = list(dict.fromkeys(values.values()))
        if not distinct:
            raise LogDirsUnformatted(self._unknown(what))
        if len(distinct) > 1:
            found = ", ".join(f"{value} in {log_dir}" for log_dir, value in values.items())
            raise SettingsError(f"the log dirs belong to different brokers or clusters: {what} {found}")
        return distinct[0]

    def files_without_ids(self) -> list[str]:
        """Each `meta.properties` without an id, such as one with other content. A broker accepts it next to one that has them."""
        found = ((state.log_dir / META_PROPERTIES, state.meta) for state in self._states.values())
        return [str(file) for file, meta in found if meta and not meta.has_ids]

    def _unknown(self, what: str) -> str:
        problems = [state.problem for state in self._states.values() if state.problem]
        setting = f"broker.{what.replace(' ', '_')}"
        if len(problems) == len(self._states):
            found = "; ".join(problems) or "no log dir is given"
            return f"{found}: no {what} is known; are these a broker's log dirs? If not, correct broker.log_dirs"
        searched = ", ".join(str(state.log_dir) for state in self._states.values() if not state.problem)
        return f"no {what} in {META_PROPERTIES} of {searched}; are these a broker's log dirs? If so, set {setting}"

    def partition(self, files: PartitionFiles) -> PartitionFacts:
        """Facts about one partition from the files; if they are not enough, `reason` says so.

        Raises PartitionError for a file that cannot be read, CorruptFile for one that cannot be believed.
        """
        stable_end_offset, reason = self._stable_end_offset(files)
        leads = self.assume_leader
        return PartitionFacts(
            topic_partition=files.topic_partition,
            topic_id=files.topic_id,
            leads=leads,
            leader_epoch=latest_epoch(files.directory),
            stable_end_offset=stable_end_offset,
            log_start_offset=self.log_start_offset(files),
            reason=reason or (None if leads else Wait.LEADERSHIP_NOT_ON_DISK),
            unanswered=leads and reason is not None,
        )

    def topics(self) -> None:
        """See `BrokerFacts`: files know of no more than what lies here."""

    def confirm(self, files: PartitionFiles) -> PartitionFacts:
        return self.partition(files)

    def _stable_end_offset(self, files: PartitionFiles) -> tuple[int, WaitReason | None]:
        state = self._states.get(files.log_dir)
        if state is None:
            return 0, OutsideLogDirs(str(files.log_dir))
        checkpoints = state.high_watermark, state.recovery_point
        for checkpoint in checkpoints:
            problem = checkpoint.lacks(files.topic_partition)
            if problem:
                return 0, NotCheckpointed(problem)
        return max(0, min(checkpoint.offsets[files.topic_partition] for checkpoint in checkpoints)), None

    def high_watermark(self, files: PartitionFiles) -> int:
        """What the high watermark has reached for certain: the broker writes it down every few seconds. 0 if it is unknown."""
        state = self._states.get(files.log_dir)
        return state.high_watermark.offsets.get(files.topic_partition, 0) if state else 0

    def log_start_offset(self, files: PartitionFiles) -> int:
        """Where the log begins as far as files tell. Raises PartitionError for a checkpoint that cannot be read."""
        first_base = files.segments[0].base_offset if files.segments else files.active_base_offset or 0
        state = self._states.get(files.log_dir)
        checkpointed = state.log_start.offset(files.topic_partition) if state else None
        return max(first_base, checkpointed or 0)


def latest_epoch(directory: Path) -> int:
    """Read from the file; `NO_LEADER_EPOCH` where there is none.

    Raises PartitionError if it cannot be read, CorruptFile if it cannot be believed.
    """
    epochs = read_file(directory / LEADER_EPOCH_CHECKPOINT, read_leader_epochs)
    return NO_LEADER_EPOCH if epochs is None else epochs.latest_epoch
