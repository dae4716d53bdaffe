"""Facts from the broker itself: what it leads, under which epoch, and how far that is stable. Never a guess.

Every refresh queries the cluster for the leader, and then the leader itself, under that epoch, for its offsets. Where
the two disagree nothing is archived. Ids and log start of the directories come from files, as `FileBrokerFacts` reads them.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count

from sidecar.broker.cluster_view import (
    EARLIEST,
    READ_UNCOMMITTED,
    ClusterView,
    PartitionOffset,
    all_topics,
    describe_topics,
    list_offsets,
    missing_right,
    require_broker,
)
from sidecar.broker.connection import BrokerConnection
from sidecar.broker.files import FileBrokerFacts
from sidecar.broker.topic_configs import TopicConfigs
from sidecar.broker.unseen_replicas import ADVICE, unseen_replicas
from sidecar.clock import Clock
from sidecar.errors import BrokerTrouble, BrokerUnavailable, LogDirsUnformatted, SettingsError
from sidecar.event_log import EVENTS
from sidecar.logformat.files import topics_of
from sidecar.logformat.names import CLUSTER_METADATA_TOPIC
from sidecar.model import PartitionFiles, TopicPartition
from sidecar.partition.facts import PartitionFacts
from sidecar.partition.wait_reason import (
    BrokerAway,
    LeaderUnknown,
    NoStableOffset,
    NotLeader,
    StrayDirectory,
    Wait,
    WrongCluster,
)
from sidecar.ports import FactsState
from sidecar.topic_policy import TopicPolicy

TOPICS_MAX_AGE_S = 300.0
"""All topics of a large cluster are a large answer, and are asked for only where none of them is chosen."""
LOG_DIRS_MAX_AGE_S = 600.0
"""So often the broker's replicas are compared with the directories: the answer lists all of them."""
OTHERS_ASKED_MAX = 3
"""Before the local one: where many are gone at once, each may take `request_timeout_s` to say nothing."""


@dataclass(frozen=True, slots=True)
class _Look:
    """The result of one refresh. Offsets only of partitions that this broker leads."""

    cluster: ClusterView
    stable: dict[TopicPartition, PartitionOffset] = field(default_factory=dict)
    log_starts: dict[TopicPartition, PartitionOffset] = field(default_factory=dict)


class BrokerOutageLog:
    """The troubles that were logged since the broker answered last.

    The first one may hide another: while a broker starts, it refuses connections, and then perhaps a password.
    """

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._logged = BrokerTrouble(0)

    def goes_on(self, error: BrokerUnavailable) -> None:
        if error.trouble not in self._logged:
            self._logged |= error.trouble
            EVENTS.warning("broker_unreachable", error=str(error), effect="no new upload begins")

    def is_over(self) -> None:
        if self._logged:
            self._logged = BrokerTrouble(0)
            EVENTS.info("broker_reachable", servers=self._servers)


@dataclass(eq=False)
class LiveBrokerFacts:
    """Implements `ports.BrokerFacts` by asking the broker. While it is unreachable, the last known facts are returned,
    with a reason not to plan.

    `archives`: whether a topic is to be archived: only there a missing right is worth a word.
    """

    files: FileBrokerFacts
    connection: BrokerConnection
    configs: TopicConfigs
    _broker_id: int
    clock: Clock
    archives: Callable[[str], bool] = lambda _: True
    _began_as: str = field(default="", init=False)
    _look: _Look | None = field(default=None, init=False)
    _state: FactsState = field(default=FactsState(None, Wait.BROKER_NOT_ASKED), init=False)
    _others_asked: Iterator[int] = field(default_factory=count, init=False)
    _topics: tuple[float, frozenset[str]] | None = field(default=None, init=False)
    _log_dirs_compared_s: float | None = field(default=None, init=False)
    _cluster_id: str | None = field(init=False)
    _outage_log: BrokerOutageLog = field(init=False)

    def __post_init__(self) -> None:
        """Asks nothing yet. Raises SettingsError."""
        self._cluster_id = self.files.cluster_id_on_disk()
        self._outage_log = BrokerOutageLog(self.connection.servers)
        self._require_same_broker()

    def cluster_id(self) -> str:
        """As `meta.properties` says; every refresh is compared with it."""
        return self.files.cluster_id()

    def broker_id(self) -> int:
        return self._broker_id

    def state(self) -> FactsState:
        return self._state

    def policy(self, topic: str) -> TopicPolicy:
        return self.configs.policy(topic)

    def topics(self) -> frozenset[str]:
        """See `BrokerFacts`. Queried again from time to time."""
        now_s = self.clock.monotonic_s()
        if self._topics is None or now_s - self._topics[0] >= TOPICS_MAX_AGE_S:
            self._topics = now_s, all_topics(self.connection)
        return self._topics[1]

    def refresh(self) -> None:
        """Read the files and query the broker again. An unreachable broker raises nothing: `state` and every reason report it.

        Raises SettingsError if it is a broker of another cluster, or if the log dirs are another broker's since the first refresh.
        """
        self.files.refresh()
        try:
            self._require_same_broker()
            # No topic that anybody but the quorum knows.
            topics = topics_of(self.files.log_dirs) - {CLUSTER_METADATA_TOPIC}
            self._look = self._ask(topics)
            self.configs.refresh(self._broker_id, topics)
        except SettingsError as error:
            self._state = replace(self._state, away=WrongCluster(str(error)), refused=error)
            raise
        except BrokerUnavailable as error:
            self._outage_log.goes_on(error)
            self._state = replace(self._state, away=BrokerAway(str(error), error.trouble))
            return
        self._outage_log.is_over()
        problems = self._look.cluster.problems
        of_topics = [problem for topic, problem in problems.items() if self.archives(topic)]
        missing = missing_right(of_topics, "it is not archived") + self.configs.missing_rights(self.archives)
        if missing != self._state.missing_rights:
            for right in missing:
                EVENTS.warning("broker_permission_denied", right=right)
        unseen = self._unseen_replicas()
        if unseen and not self._state.unseen_replicas:
            EVENTS.warning("replicas_not_seen", finding=unseen, effect="they are not archived", remedy=ADVICE)
        self._state = FactsState(self.clock.now_ms(), None, missing, unseen_replicas=unseen)

    def _unseen_replicas(self) -> str:
        """As of the last comparison, which is made again from time to time."""
        now_s = self.clock.monotonic_s()
        if self._log_dirs_compared_s is not None and now_s - self._log_dirs_compared_s < LOG_DIRS_MAX_AGE_S:
            return self._state.unseen_replicas
        self._log_dirs_compared_s = now_s
        try:
            return unseen_replicas(self.connection, self._broker_id, self.files.log_dirs, self.archives)
        except BrokerUnavailable:
            return self._state.unseen_replicas  # Nothing depends on it. What does reports a broker that is away.

    def _ask(self, topics: frozenset[str]) -> _Look:
        cluster = describe_topics(self.connection, topics)
        self._require_cluster(cluster)
        require_broker(cluster, self._broker_id)
        led = {tp: leader.leader_epoch for tp, leader in cluster.leaders.items() if leader.leader_id == self._broker_id}
        return self._offsets(cluster, led)

    def _offsets(self, cluster: ClusterView, led: Mapping[TopicPartition, int]) -> _Look:
        ask = self.connection, self._broker_id, led
        return _Look(
            cluster,
            stable=list_offsets(*ask),
            log_starts=list_offsets(*ask, timestamp=EARLIEST, isolation_level=READ_UNCOMMITTED),
        )

    def _require_same_broker(self) -> None:
        with suppress(LogDirsUnformatted):  # Not mounted now, which says nothing.
            found = f"broker {self.files.broker_id()} of cluster {self.files.cluster_id()}"
            self._began_as = self._began_as or found
            if found != self._began_as:
                raise SettingsError(
                    f"the log dirs belong to {found}, and belonged to {self._began_as} when this process started. Nothing is "
                    "archived: restart the sidecar"
                )

    def _require_cluster(self, cluster: ClusterView) -> None:
        expected = self._cluster_id
        if expected is not None and cluster.cluster_id not in (None, expected):
            raise SettingsError(
                f"broker.connection: {self.connection.servers} belongs to cluster {cluster.cluster_id}, the log dirs "
                f"to cluster {expected}. Nothing is archived: correct bootstrap_servers or log_dirs"
            )

    def partition(self, files: PartitionFiles) -> PartitionFacts:
        away = self._state.away
        facts = self._from_files(files)
        if self._look is not None:
            facts = _facts_of(self._look, self._broker_id, files, facts, self.files.high_watermark(files))
        return replace(facts, reason=away) if away else facts

    def _from_files(self, files: PartitionFiles) -> PartitionFacts:
        """Facts that no cluster reports. As far as files say, nothing is led and nothing is stable."""
        return PartitionFacts(files.topic_partition, files.topic_id, False, -1, 0, self.files.log_start_offset(files))

    def confirm(self, files: PartitionFiles) -> PartitionFacts:
        """See `BrokerFacts`. Asks another node first, then the leader itself, under the epoch that is the higher one.

        A broker that slept does not know that it was deposed; the others do. Raises SettingsError if it is one of another cluster.
        """
        topic_partition = files.topic_partition
        cluster = self._elsewhere(topic_partition.topic)
        self._require_cluster(cluster)
        leader = cluster.leaders.get(topic_partition)
        leads = leader is not None and leader.leader_id == self._broker_id
        look = self._offsets(cluster, {topic_partition: leader.leader_epoch}) if leader and leads else _Look(cluster)
        return _facts_of(look, self._broker_id, files, self._from_files(files))

    def _elsewhere(self, topic: str) -> ClusterView:
        """What a node other than ours knows of a topic, or ours if there is no other that answers."""
        known = set() if self._look is None else set(self._look.cluster.broker_ids)
        others = sorted(known - {self._broker_id})
        for _ in others[:OTHERS_ASKED_MAX]:
            node_id = others[next(self._others_asked) % len(others)]
            with suppress(BrokerUnavailable):
                return describe_topics(self.connection, [topic], node_id, spare=True)
        return describe_topics(self.connection, [topic], self._broker_id)

    def close(self) -> None:
        self.connection.close()


def _facts_of(
    look: _Look, broker_id: int, files: PartitionFiles, from_files: PartitionFacts, high_watermark: int = 0
) -> PartitionFacts:
    """Facts of one partition from one refresh. Pure. `high_watermark`: a lower bound, from before the refresh."""
    topic_partition = files.topic_partition
    topic_id = look.cluster.topic_ids.get(topic_partition.topic)
    leader = look.cluster.leaders.get(topic_partition)
    if leader is None:
        problem = look.cluster.problems.get(topic_partition.topic, "no such partition")
        return replace(from_files, reason=LeaderUnknown(str(problem)))
    if topic_id is not None and files.topic_id is not None and topic_id != files.topic_id:
        return replace(from_files, reason=StrayDirectory(files.topic_id, topic_id))
    named = replace(from_files, topic_id=files.topic_id or topic_id, leader_epoch=leader.leader_epoch)
    if leader.leader_id != broker_id:
        return replace(named, reason=NotLeader(leader.leader_id) if leader.leader_id >= 0 else Wait.NO_LEADER)
    stable = look.stable.get(topic_partition, PartitionOffset(-1, "no answer"))
    if stable.problem:
        return replace(named, reason=NoStableOffset(leader.leader_epoch, stable.problem), unanswered=True)
    log_start = look.log_starts.get(topic_partition)
    return replace(
        named,
        leads=True,
        reason=None,
        stable_end_offset=stable.offset,
        transactions_decided=True,
        transaction_open=high_watermark > stable.offset,  # else the two are the same
        cluster_start_offset=None if log_start is None or log_start.problem else log_start.offset,
    )
