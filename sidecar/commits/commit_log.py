"""A partition's commit log in a store: read it, and append to it so that of two racing writers exactly one wins."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

from sidecar.archive.actions import Action, AdoptTopicId
from sidecar.archive.checkpoint import CHECKPOINT_BYTES_MAX, encode_checkpoint
from sidecar.archive.commit import COMMIT_BYTES_MAX, NONCE_BYTES, Commit, Writer, decode_commit, digest, encode_commit
from sidecar.archive.fold import fold
from sidecar.archive.keys import CHECKPOINTS, COMMITS, below, checkpoint_key, commit_key, parse_root
from sidecar.archive.state import CommitId, PartitionState, empty_state
from sidecar.clock import Clock
from sidecar.commits.stored_commits import RESTORE_COMMIT, SETTLE_S, StoredCommits, mark_of, put_once
from sidecar.errors import (
    CommitRefused,
    CorruptFile,
    CoverageHole,
    Fenced,
    ObjectExists,
    PartitionError,
    SidecarError,
)
from sidecar.event_log import EVENTS
from sidecar.model import ObjectKey
from sidecar.ports import ObjectFacts, ObjectStore
from sidecar.randomness import Randomness, SystemRandomness

CHECKPOINT_EVERY = 100
"""Commits after which a writer makes a checkpoint in any case."""
SPARED_MIN = 8
SPARED_SHARE = 4
"""At the end of a task one is worth its bytes as soon as it saves a reader so many requests, and a quarter of all commits."""
CHECKPOINTS_TRIED = 2
LOST_WAIT_S_FIRST = 0.1
LOST_WAIT_S_MAX = 5.0
"""After a lost commit a writer waits, twice as long with each one in a row: the winner goes on meanwhile."""


class CommitConflict(PartitionError):
    """Another writer's commit came first. `state` is what the archive holds now: decide again on top of it."""

    retryable: ClassVar[bool] = True

    def __init__(self, message: str, state: PartitionState) -> None:
        super().__init__(message)
        self.state = state


@dataclass(frozen=True, slots=True)
class StateId:
    """What identifies a state: the number of its last commit, and the SHA-256 of its checkpoint content."""

    number: int
    sha256: str


def state_id(state: PartitionState) -> StateId:
    """Only of a whole state, after a commit."""
    return StateId(state.next_number - 1, digest(encode_checkpoint(state)))


class CommitLog:
    """The commit log of one lineage. Not for use by two threads at once; any number of processes may race.

    Listings may be stale: a commit that was seen once is read by its key.
    `passed_over`: why `read` did not take a checkpoint; empty if it took the newest. `newest_checkpoint`: number of the newest one
    that is known to be there, -1 for none.
    """

    def __init__(
        self,
        store: ObjectStore,
        root: ObjectKey,
        clock: Clock,
        *,
        randomness: Randomness | None = None,
        settle_s: float = SETTLE_S,
        known: Callable[[], CommitId | None] = lambda: None,
        require_going_on: Callable[[], None] = lambda: None,
    ) -> None:
        """Build it; sends nothing.

        Args:
            randomness: of the nonces, the machine's by default.
            settle_s: see `put_once`.
            known: the newest commit that this process knows by other means, asked at each reading. It must be in the store.
            require_going_on: called before each commit of a chain; what it raises ends the reading.
        """
        self.lineage = parse_root(root)
        self._store = store
        self._stored = StoredCommits(store, root)
        self._root = root
        self._clock = clock
        self._randomness = randomness or SystemRandomness()
        self._settle_s = settle_s
        self._known = known
        self._require_going_on = require_going_on
        self._newest_seen = -1
        self._lost_in_a_row = 0
        self.newest_checkpoint = -1
        self._is_resumed = False
        self._unreadable: CorruptFile | None = None
        self._newest_listed = (-1, "")
        self._next_checkpoint_try = 0
        self._checkpoint_failures = 0
        self.passed_over: list[CorruptFile] = []

    def read(self) -> PartitionState:
        """The state after the newest commit: from the newest valid checkpoint and the commits after it.

        Raises:
            CorruptFile: a commit is damaged or missing, or does not fit its predecessor, its checkpoint or what is known. A
                damaged checkpoint is passed over. A valid one is not: without its commit the next commits would begin another
                history.
        """
        return self._read(*self._stored.listed_together())

    def read_checkpointed(self) -> PartitionState | None:
        """As `read`; None where no checkpoint is listed: that would read what `read_whole_chain` reads."""
        numbers, commits = self._stored.listed_together()
        return self._read(numbers, commits) if numbers else None

    def _read(self, numbers: Mapping[int, ObjectFacts], commits: Mapping[int, ObjectFacts] | None) -> PartitionState:
        self.passed_over = []
        self._newest_seen = max(self._newest_seen, *numbers, -1)  # A checkpoint is written after its commit.
        number, state = -1, empty_state(self.lineage)
        for listed in sorted(numbers, reverse=True)[:CHECKPOINTS_TRIED]:
            try:
                number, state = listed, self._stored.checkpoint(listed, numbers[listed])
                break
            except CorruptFile as error:
                EVENTS.warning("checkpoint_ignored", key=below(self._root, checkpoint_key(listed)), reason=str(error))
                self.passed_over.append(error)
        state = self.refresh(state, commits)
        self.newest_checkpoint, self._unreadable = max(self.newest_checkpoint, number), None
        return state

    def read_whole_chain(self, *, below_number: int | None = None) -> PartitionState:
        """The same from commit 0 on, without trust in any checkpoint. Raises CorruptFile.

        `below_number`: only the commits below it, so the state before that one. Nothing can be appended to this.
        """
        commits = self._stored_from(-1)
        if below_number is not None:
            commits = {number: facts for number, facts in commits.items() if number < below_number}
        return self.refresh(empty_state(self.lineage), commits)

    def read_above(self, verified: StateId) -> PartitionState | None:
        """The same, but of the commits that an earlier reading of all of them had, only those behind a checkpoint.

        Args:
            verified: `state_id` of what that reading gave.

        None unless checkpoint and commits give that very state. Raises CorruptFile for damage above it.
        """
        checkpoints = self._stored.listed(CHECKPOINTS)
        number = max((found for found in checkpoints if found <= verified.number), default=-1)
        if number < 0:
            return None
        commits = self._stored_from(number)
        try:
            state = self._stored.checkpoint(number, checkpoints[number])
            state = self._fold(state, {n: facts for n, facts in commits.items() if number < n <= verified.number})
        except (CorruptFile, CommitRefused, CoverageHole, Fenced):
            return None
        return self.refresh(state, commits) if state_id(state) == verified else None

    def resume(self, state: PartitionState, newest_checkpoint: int, mark: str = "") -> PartitionState:
        """The state after the newest commit, given the newest part of one that an earlier process knew.

        Args:
            newest_checkpoint: number of one that is known to be there, -1 for none.
            mark: what the store said of the last commit; it is read where that is nothing, or no more true.

        Raises CorruptFile if the store does not have its last commit, or if later commits do not fit that part.
        """
        last = state.next_number - 1
        listed = self._stored_from(last)
        if not (mark and last in listed and mark_of(listed[last]) == mark):
            self.require_commit(last, state.last_sha256)
        self.newest_checkpoint = newest_checkpoint
        self._is_resumed = True
        return self._folded(state, listed)

    def require_commit(self, number: int, sha256: str | None) -> None:
        """Raise CorruptFile unless the store has this commit with this SHA-256. It is read by key: listings may be stale."""
        _, found = self._stored.commit_below(number, number)
        self._newest_seen = max(self._newest_seen, number)
        if found != sha256:
            raise CorruptFile(
                f"commit {number} has SHA-256 {found}, but this sidecar read, or a checkpoint includes, {sha256}. One of them "
                "was replaced",
                file=self._stored.key(number),
                advice=RESTORE_COMMIT,
            )

    def mark(self, number: int) -> str:
        """What identifies this commit among others under its key; empty unless it was the newest one listed."""
        newest, mark = self._newest_listed
        return mark if newest == number else ""

    def _stored_from(self, known: int) -> dict[int, ObjectFacts]:
        """Commits from this one on, all if it is -1."""
        return self._stored.listed(COMMITS, start_after=commit_key(known - 1) if known > 0 else "")

    def refresh(self, state: PartitionState, listed: Mapping[int, ObjectFacts] | None = None) -> PartitionState:
        """The state after the newest commit, given an earlier one. Raises CorruptFile.

        `listed`: at least the commits from the state's last one on, where they are listed already.
        """
        known = state.next_number - 1
        if known >= 0:
            self.require_commit(known, state.last_sha256)
        return self._folded(state, self._stored_from(known) if listed is None else listed)

    def _folded(self, state: PartitionState, listed: Mapping[int, ObjectFacts]) -> PartitionState:
        known = self._known()
        if known is not None:
            self._newest_seen = max(self._newest_seen, known.number)
        newest = max(listed, default=-1)
        self._newest_listed = (newest, mark_of(listed[newest]) if listed else "")
        tail = {number: facts for number, facts in listed.items() if number >= state.next_number}
        try:
            state = self._fold(state, tail)
            # An archive that seems empty is asked for its first commit: a stale listing would hide all of it, and what is lost.
            if state.next_number <= max(self._newest_seen, 0):
                state = fold(state, self._stored.commits_by_key(state.next_number))
        except (CommitRefused, CoverageHole, Fenced) as error:
            raise CorruptFile(
                f"the commit log contradicts itself: {error}",
                file=self._root,
                advice="restore the altered commit from a replica of the bucket or an earlier object version. Until then, every "
                "command that reads it stops here",
            ) from error
        if state.next_number <= self._newest_seen:
            self._stored.commit_below(state.next_number, self._newest_seen)
        if known is not None and known != state.last_commit:
            self.require_commit(known.number, known.sha256)
        self._newest_seen = state.next_number - 1
        return state

    def _fold(self, state: PartitionState, listed: Mapping[int, ObjectFacts]) -> PartitionState:
        def going_on() -> Iterator[tuple[Commit, str]]:
            for found in self._stored.commits(state.next_number, listed):
                self._require_going_on()
                yield found

        return fold(state, going_on())

    def append(self, actions: Sequence[Action], writer: Writer, expected: PartitionState) -> PartitionState:
        """Commit `actions` on top of `expected`, with one create-only put.

        Raises:
            Fenced: a writer with a higher leader epoch has committed; this one must stop.
            CommitConflict: another writer was faster; its `state` is the one to decide on again.
            CoverageHole, CommitRefused: the actions break a rule of the archive; nothing was written.
            CorruptFile: the store no longer has the commit before, or lost newer ones; nothing was written.
            OutcomeUnknown, StoreUnsafe: the put was sent, and its outcome is unknown. The next `read` resolves it.

        See `proves_not_committed`.
        """
        commit, body, state = self._prepare(actions, writer, expected)
        self._require_newest(expected)
        is_ours = put_once(self._stored, self._clock, commit, body, self._settle_s)
        self._newest_seen = max(self._newest_seen, commit.number)
        if not is_ours:
            raise self._lost(commit)
        self._lost_in_a_row = 0
        self._checkpoint_if_due(commit.number, CHECKPOINT_EVERY, state)
        return state

    def _require_newest(self, expected: PartitionState) -> None:
        """Raise CorruptFile unless the store has the last commit of `expected`, and no trace of a newer one that is missing.

        A create-only put proves nothing about the commits before it. Readers would refuse what was put on top of a missing one.
        """
        self._require_readable()
        if expected.last_sha256 is not None:
            self.require_commit(expected.next_number - 1, expected.last_sha256)
        if self._is_resumed:
            # `resume` saves this request for the many partitions that append nothing after a start.
            known = self.newest_checkpoint
            if self._stored.listed(CHECKPOINTS, start_after=checkpoint_key(known) if known >= 0 else ""):
                self.read()
            self._is_resumed = False
        if expected.next_number <= self._newest_seen:
            self._stored.commit_below(expected.next_number, self._newest_seen)

    def _require_readable(self) -> None:
        if self._unreadable is not None:
            raise self._unreadable

    def require_fit(self, actions: Sequence[Action], writer: Writer, expected: PartitionState) -> None:
        """Raise what `append` would raise before its put, such as CommitRefused for a commit that is too large."""
        self._prepare(actions, writer, expected)

    def _lost(self, commit: Commit) -> Fenced | CommitConflict:
        self._clock.sleep_s(min(LOST_WAIT_S_FIRST * 2**self._lost_in_a_row, LOST_WAIT_S_MAX))
        self._lost_in_a_row += 1
        # Not on top of what was expected: writers keep only the newest part, and a compaction replaces what lies below.
        now = self.read()
        if now.highest_leader_epoch > commit.writer.leader_epoch:
            return Fenced(
                f"{self._root}: leader epoch {now.highest_leader_epoch} has committed, this writer has "
                f"{commit.writer.leader_epoch}: another broker leads {self.lineage.topic_partition} now. "
                f"Commit {commit.number} of this writer was not made; the leader's sidecar archives the partition"
            )
        return CommitConflict(
            f"{self._root}: another writer made commit {commit.number} first, so this writer did not", now
        )

    def _prepare(
        self, actions: Sequence[Action], writer: Writer, expected: PartitionState
    ) -> tuple[Commit, bytes, PartitionState]:
        """The commit, its bytes, and the state after it, taken from what those bytes decode to."""
        topic_ids = [action.topic_id for action in actions if isinstance(action, AdoptTopicId)]
        commit = Commit(
            number=expected.next_number,
            previous_sha256=expected.last_sha256,
            nonce=self._randomness.random_bytes(NONCE_BYTES).hex(),
            committed_at_ms=max(self._clock.now_ms(), expected.last_committed_at_ms),
            topic_partition=self.lineage.topic_partition,
            topic_id=topic_ids[-1] if topic_ids else expected.topic_id,
            writer=writer,
            actions=tuple(actions),
        )
        try:
            body = encode_commit(commit)
            if not actions or len(body) > COMMIT_BYTES_MAX:
                raise CommitRefused(
                    f"{self._root}: a commit of {len(actions)} actions and {len(body)} bytes: expected at least one "
                    f"action and at most {COMMIT_BYTES_MAX} bytes. Nothing was committed"
                )
            return commit, body, fold(expected, [(decode_commit(body, self._root), digest(body))])
        except (CorruptFile, UnicodeEncodeError) as error:
            raise CommitRefused(f"{self._root}: commit {commit.number} could not be read back: {error}") from error

    def leave_checkpoint(self, state: PartitionState) -> None:
        """The writer has no more work: write a checkpoint if it saves the next reader much. A failure of the store is only noted.

        Raises CorruptFile if a checkpoint was due, here or after a commit, and the archive could not be read.
        """
        number = state.next_number - 1
        spares = max(SPARED_MIN, min(CHECKPOINT_EVERY, number // SPARED_SHARE))
        self._checkpoint_if_due(number, spares, state)
        self._require_readable()

    def _checkpoint_if_due(self, number: int, every: int, state: PartitionState) -> None:
        """Write a checkpoint where one is due. It spares readers time and nothing else: a failure of the store is only noted.

        Damage is kept for `_require_readable` until the archive can be read again. After a commit it must not be raised: it would
        seem to prove that nothing was committed.
        """
        if number < max(self.newest_checkpoint + every, self._next_checkpoint_try):
            return
        try:
            self._write_checkpoint(state if state.is_whole else self.read())
        except CorruptFile as error:
            self._unreadable = error
        except SidecarError as error:
            # Each try reads the whole state: a store that refuses for good must not cost that with every commit.
            self._checkpoint_failures += 1
            self._next_checkpoint_try = number + min(2 ** (self._checkpoint_failures - 1), CHECKPOINT_EVERY)
            EVENTS.warning("checkpoint_not_written", root=self._root, number=number, reason=str(error))
        else:
            self._checkpoint_failures = 0

    def _write_checkpoint(self, state: PartitionState) -> None:
        number = state.next_number - 1
        key = below(self._root, checkpoint_key(number))
        body = encode_checkpoint(state)
        if len(body) > CHECKPOINT_BYTES_MAX:
            raise PartitionError(f"{key}: {len(body)} bytes, readers take at most {CHECKPOINT_BYTES_MAX}")
        with suppress(ObjectExists):
            self._store.put_if_absent(key, body)
        self.newest_checkpoint = number
