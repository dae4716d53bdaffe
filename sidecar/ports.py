"""What the program asks of the world, as protocols. Adapters live in `storage`, `discovery` and `broker`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from sidecar.errors import SettingsError
from sidecar.model import FileIdentity, ObjectKey, PartitionFiles

if TYPE_CHECKING:  # Commands that only read an archive need none of these.
    from sidecar.partition.domain_events import Emit
    from sidecar.partition.facts import PartitionFacts
    from sidecar.partition.wait_reason import Away
    from sidecar.topic_policy import TopicPolicy

MIB = 1024 * 1024
LISTED_AT_FIRST: Final = 50
"""Objects of a listing that come with its first request where a store lists by page. Most listings are shorter, or broken off."""


@dataclass(frozen=True, slots=True)
class ObjectFacts:
    """An object as listed or asked for. `crc32c` is the store's own checksum of the whole object, where it keeps one.

    `modified_ms`: by the store's clock; None where the store does not say. Whoever compares ages takes None for "now".
    `etag`: of listings, what the store has instead: another one whenever the content is another; None where it has none, or
    only a weak one. Source: S3 API Reference, Object. `frozen_in`: of an object that was asked for, the storage class or tier
    from which it must be restored before it can be read; "" for none.
    """

    key: ObjectKey
    size_bytes: int
    modified_ms: int | None
    crc32c: int | None = None
    etag: str | None = None
    frozen_in: str = ""


@dataclass(frozen=True, slots=True)
class UnfinishedUpload:
    """A multipart upload that was neither completed nor aborted: it costs money and shows in no listing.

    `started_ms`: by the store's clock; None where the store does not say.
    """

    key: ObjectKey
    upload_id: str
    started_ms: int | None


class UploadSource(Protocol):
    """Bytes to upload, readable at any position from several threads at once. `name`: for messages."""

    size_bytes: int
    name: str

    def read_at(self, position: int, size_bytes: int) -> bytes | memoryview:
        """Exactly `size_bytes` bytes from `position`; raises SegmentChanged if the source has become shorter."""


OnFacts: TypeAlias = Callable[[ObjectFacts], None]


class ObjectStore(Protocol):
    """Objects under keys. Nothing is ever overwritten. Errors are those of `sidecar.errors.StoreError`."""

    url: str
    """For people: scheme, bucket and prefix, without credentials."""
    lists_by_page: bool
    """Whether a listing that is broken off costs what was taken of it, and not the rest."""

    def put_if_absent(self, key: ObjectKey, body: bytes) -> None:
        """Create a small object. Raises ObjectExists if the key exists already, OutcomeUnknown if the answer was lost."""

    def upload(self, key: ObjectKey, source: UploadSource) -> int:
        """Create an object of any size under a fresh key, in parallel parts, with checksums end to end.

        Returns the CRC-32C of what was sent, computed while the source was read.
        """

    def read(self, key: ObjectKey, position: int = 0, size_bytes: int | None = None, *, whole: bool = False) -> bytes:
        """A range of an object, or all of it; fewer bytes than asked for where the object ends. Raises ObjectMissing.

        `whole`: the object should end within `size_bytes`. If it does, a store with checksums of whole objects checks them.
        """

    def stream(
        self, key: ObjectKey, chunk_bytes: int = 4 * MIB, *, checked: bool = True, on_facts: OnFacts | None = None
    ) -> Iterator[bytes]:
        """All bytes of an object in order, memory bounded by the chunk. Raises ObjectMissing.

        `checked`: at the end they are compared with the store's checksum, where it keeps one. Without it the caller checks them.
        `on_facts`: is given what `head` would say, before the first byte and without a request for it.
        """

    def head(self, key: ObjectKey) -> ObjectFacts | None:
        """Size and checksum, or None if there is no such object."""

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectFacts]:
        """Objects whose key begins with `prefix`, ascending by key, those above `start_after` only."""

    def list_folders(self, prefix: str) -> Iterator[str]:
        """The distinct next path elements below `prefix` (which ends with '/' or is empty)."""

    def delete(self, keys: Iterable[ObjectKey]) -> None:
        """Remove objects; a key without object is no error."""

    def unfinished_uploads(self, prefix: str) -> Iterator[UnfinishedUpload]:
        """Multipart uploads begun below `prefix` and not ended (none on stores without multipart).

        Raises StoreDenied, or StoreUnsupported where the store has no such listing: see `storage.leftovers`.
        """

    def abort_upload(self, upload: UnfinishedUpload) -> None:
        """End such an upload without an object."""

    def close(self) -> None:
        """Give back threads and connections; the store is not used afterwards."""


class OpenFiles(Protocol):
    """Open files of the broker. A descriptor outlives the broker's deletion of its file."""

    def open(self, file: FileIdentity) -> int:
        """A read-only descriptor of the file that was listed. Raises SegmentChanged, PartitionError."""

    def identity(self, file: FileIdentity, descriptor: int) -> FileIdentity:
        """What an open file is now, under the name that it had when it was listed. Raises PartitionError if its disk fails."""

    def duplicate(self, file: FileIdentity, descriptor: int) -> int:
        """A second descriptor of the same open file, to be closed by itself. Raises TooManyOpenFiles."""

    def close(self, descriptor: int) -> None:
        """Give a descriptor back."""

    def is_unlinked(self, file: FileIdentity, descriptor: int) -> bool:
        """Whether the file has no name any more: its bytes go with the last descriptor. Raises PartitionError."""

    def has_its_name(self, file: FileIdentity) -> bool:
        """Whether the listed file still has its name. True also if that is unknown: the disk may come back."""

    def free_share(self, freed_bytes: int, file: FileIdentity, descriptor: int) -> float:
        """How much of the file's disk others than root may fill once so many bytes are freed: 0 to 1. Raises PartitionError."""

    def source(self, descriptor: int, size_bytes: int, name: str, start_position: int = 0) -> UploadSource:
        """The bytes of an open file from a position on. `name`: for messages."""


@dataclass(frozen=True, slots=True)
class FactsState:
    """How fresh the facts are.

    `read_ms`: when they were last read, None for never. `away`: why they cannot be read now, None if they can.
    `missing_rights`: what the broker does not let us ask, and what follows from that. `refused`: what the last `refresh` raised
    because the broker that answered is not the one to ask. `unseen_replicas`: what the broker has and this process does not see,
    "" for nothing.
    """

    read_ms: int | None
    away: Away | None = None
    missing_rights: tuple[str, ...] = ()
    refused: SettingsError | None = None
    unseen_replicas: str = ""


class BrokerFacts(Protocol):
    """Facts about the local broker."""

    def cluster_id(self) -> str:
        """Cluster id as in `meta.properties`. Raises SettingsError where it is unknown or the log dirs disagree."""

    def broker_id(self) -> int:
        """This broker's id. Raises SettingsError where it is unknown or the log dirs disagree."""

    def partition(self, files: PartitionFiles) -> PartitionFacts:
        """What may be archived of this partition, as of the last `refresh`."""

    def confirm(self, files: PartitionFiles) -> PartitionFacts:
        """Leadership of this partition now, from a new request. Raises BrokerUnavailable if it is unknown."""

    def policy(self, topic: str) -> TopicPolicy:
        """What holds for a topic, as far as it is known."""

    def topics(self) -> frozenset[str] | None:
        """All topics of the cluster that we may know of, None where no broker is asked. Raises BrokerUnavailable."""

    def state(self) -> FactsState:
        """How fresh all of this is."""

    def refresh(self) -> None:
        """Read everything again. `state` reports a broker that does not respond."""


class HasStore(Protocol):
    @property
    def store(self) -> ObjectStore: ...


class HasFacts(Protocol):
    @property
    def facts(self) -> BrokerFacts: ...


class HasEmit(Protocol):
    @property
    def emit(self) -> Emit: ...


class HasInstance(Protocol):
    @property
    def instance(self) -> str: ...


class HasBeat(Protocol):
    @property
    def beat(self) -> Callable[[], None]: ...


class HasStop(Protocol):
    @property
    def stop(self) -> Event: ...
