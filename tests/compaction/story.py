"""A partition written batch by batch, cleaned round by round by the reference in Kafka's way; each round by the engine as well."""

from __future__ import annotations

from dataclasses import replace

from producer_state.table import ProducerTable
from sidecar.compaction.rules import CompactionRules
from sidecar.logformat.bodies.building import build_batch, build_marker
from sidecar.logformat.bodies.record import Header, Record
from tests.compaction.engine import DAY_MS, compare
from tests.compaction.partitions import Partition, partition_of
from tests.compaction.reference.batches import decode_segment
from tests.compaction.reference.cleaning import clean
from tests.compaction.reference.values import CleanedRange, ReferenceSegment

FIRST_MS, NOW_MS = 1000, 10_000
"""Of the first record, and of rounds: all producers are known to a broker."""
RETENTION_MS = 3_600_000
"""Less than `producer.id.expiration.ms`: markers go while their producers are known."""
MAP_LOAD_FACTOR = 0.75
"""Of upstream's cleaner tests."""


def key_bytes(key: int | str | bytes) -> bytes:
    return key if isinstance(key, bytes) else str(key).encode()


class Story:
    """Batches go to the active segment until `roll`; `clean` runs a round over the rolled ones."""

    def __init__(self, rules: CompactionRules | None = None, *, codec: int = 0, append_time: bool = False) -> None:
        self.rules = rules or CompactionRules(NOW_MS, kafka_4_3=True, delete_retention_ms=RETENTION_MS)
        self.codec, self.append_time = codec, append_time
        self.segments: list[ReferenceSegment] = []
        self.history: list[bytes] = []
        self.active: list[bytes] = []
        self.active_base = self.next_offset = 0
        self.sequences: dict[int, int] = {}

    def put(
        self,
        *keys: int | str | bytes | None,
        value: bytes | None = b"v",
        values: tuple[bytes | None, ...] = (),
        headers: tuple[tuple[Header, ...], ...] = (),
        timestamps_ms: tuple[int, ...] = (),
        producer: int | None = None,
        transactional: bool = False,
        base_sequence: int | None = None,
    ) -> Story:
        """One batch with a record for each key."""
        base = self.next_offset
        times = timestamps_ms or (FIRST_MS + base,) * len(keys)
        records = [
            Record(
                base + index,
                times[index],
                None if key is None else key_bytes(key),
                values[index] if values else value,
                headers[index] if headers else (),
            )
            for index, key in enumerate(keys)
        ]
        produced: dict[str, int] = {}
        if producer is not None:
            sequence = self.sequences.get(producer, 0) if base_sequence is None else base_sequence
            self.sequences[producer] = sequence + len(keys)
            produced = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
        appended_ms = 5000 + base if self.append_time else None
        return self.add(
            build_batch(
                [replace(record, timestamp_ms=appended_ms) for record in records] if appended_ms else records,
                codec=self.codec,
                transactional=transactional,
                append_time_ms=appended_ms,
                **produced,  # type: ignore[arg-type]
            ),
            base + len(keys),
        )

    def txn(self, producer: int, *keys: int, base_sequence: int | None = None) -> Story:
        """A batch within the producer's transaction."""
        return self.put(*keys, producer=producer, transactional=True, base_sequence=base_sequence)

    def end(self, producer: int, *, commit: bool) -> Story:
        """A marker."""
        marker = build_marker(
            self.next_offset,
            commit=commit,
            producer_id=producer,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp_ms=FIRST_MS + self.next_offset,
        )
        return self.add(marker, self.next_offset + 1)

    def commit(self, producer: int) -> Story:
        return self.end(producer, commit=True)

    def abort(self, producer: int) -> Story:
        return self.end(producer, commit=False)

    def add(self, batch: bytes, next_offset: int) -> Story:
        """Any batch."""
        self.active.append(batch)
        self.history.append(batch)
        self.next_offset = next_offset
        return self

    def roll(self, base_offset: int | None = None, *, last_modified_ms: int = 0) -> Story:
        """The active segment is closed; the next begins here, or further up."""
        end = self.next_offset if base_offset is None else base_offset
        self.segments.append(ReferenceSegment(self.active_base, end, b"".join(self.active), last_modified_ms))
        self.active, self.active_base, self.next_offset = [], end, end
        return self

    def partition(self) -> Partition:
        """What replay of everything ever appended says; the segments are the rolled ones and the active one."""
        reported = partition_of([(0, b"".join(self.history), 0)])
        active = ReferenceSegment(self.active_base, self.next_offset, b"".join(self.active))
        return replace(reported, segments=(*self.segments, active))

    def clean(
        self,
        first_dirty: int = 0,
        *,
        now_ms: int | None = None,
        uncleanable: int | None = None,
        slots: int | None = None,
        raise_first: bool = True,
    ) -> CleanedRange:
        """One round; the log is what it left then. Returns what the reference says of it."""
        partition = self.partition()
        rules = replace(self.rules, now_ms=self.rules.now_ms if now_ms is None else now_ms)
        # The engine covers everything and knows no rounds: same input, compared for itself. A day later, half of the producers
        # have expired.
        for clock_ms in (rules.now_ms, DAY_MS + FIRST_MS + self.next_offset // 2):
            compare(partition, replace(rules, now_ms=clock_ms, kafka_4_3=False), slots=1024)
        cleaned = clean(
            self.segments,
            rules,
            last_batches=partition.last_batches(rules.now_ms),
            aborted=partition.aborted,
            first_dirty_offset=first_dirty,
            first_uncleanable_offset=uncleanable,
            raise_first=raise_first,
            max_keys=None if slots is None else int(slots * MAP_LOAD_FACTOR),
        )
        self.segments[: len(cleaned.groups)] = [group.segment for group in cleaned.groups]
        self.transactions = [found for group in cleaned.groups for found in group.transactions]
        return cleaned

    def two_pass(self, first_dirty: int = 0) -> CleanedRange:
        """Rounds before and after the horizon."""
        self.clean(first_dirty)
        return self.clean(first_dirty, now_ms=NOW_MS + RETENTION_MS)

    def records(self) -> list[Record]:
        """All records of the rolled segments, markers too."""
        return [
            record for segment in self.segments for batch in decode_segment(segment.log) for record in batch.records
        ]

    def offsets(self) -> list[int]:
        return [record.offset for record in self.records()]

    def keys(self) -> list[int]:
        """Keys of data records that are numbers."""
        return [int(record.key or b"-1") for record in self.records() if record.control is None]

    def last_offsets(self) -> list[int]:
        return [batch.last_offset for segment in self.segments for batch in decode_segment(segment.log)]

    def base_offsets(self) -> list[int]:
        return [batch.base_offset for segment in self.segments for batch in decode_segment(segment.log)]

    def last_sequences(self) -> dict[int, int]:
        """By producer, as a reload of the cleaned log would find them."""
        held = partition_of([(0, b"".join(segment.log for segment in self.segments), 0)])
        table: ProducerTable = held.table
        return {entry.producer_id: entry.last_sequence for entry in table.entries()}
