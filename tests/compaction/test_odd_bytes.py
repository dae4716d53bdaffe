"""Odd bytes under right checksums: every reader says CorruptFile, or another error of ours, and nothing else comes out."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from crc32c import crc32c

from producer_state.digest import DigestBuilder
from producer_state.replay import replay
from producer_state.table import ProducerTable
from producer_state.wire import ProducerStateError
from sidecar.compaction.rules import CompactionRules, LegacyFormat
from sidecar.compaction_strategy import Strategy
from sidecar.errors import CorruptFile, SidecarError
from sidecar.logformat.batches import scan_bytes
from sidecar.logformat.bodies.building import build_batch
from sidecar.logformat.bodies.codecs import Codec, compress, decompress
from sidecar.logformat.bodies.legacy import build_legacy_message
from sidecar.logformat.bodies.record import Record
from sidecar.logformat.dump import dump_batches, dump_records
from sidecar.logformat.indexes.rebuild import IndexBuilder
from sidecar.model import PartName
from sidecar.segment.log_check import ExpectedLog, check_log
from tests.compaction.engine import as_input, compact
from tests.compaction.partitions import partition_of
from tests.compaction.reference.values import ReferenceSegment
from tests.oracle.log_shape import CLEANER
from tests.oracle.random_batches import VERSION_HEADER
from tests.oracle.random_segments import random_log

RULES = CompactionRules(10**12, segment_bytes=10**6)
CONVERTS = replace(RULES, legacy_format=LegacyFormat.CONVERT)


def resealed(batch: bytes) -> bytes:
    """The batch with the checksum that its bytes have now."""
    data = bytearray(batch)
    if data[16] == 2:
        data[17:21] = crc32c(data[21:]).to_bytes(4)
    else:
        data[12:16] = zlib.crc32(data[16:]).to_bytes(4)
    return bytes(data)


def wrapper(offset: int, messages: list[bytes], *, magic: int = 1, codec: int = Codec.GZIP, **given: int) -> bytes:
    stream = compress(codec, b"".join(messages), magic)
    return build_legacy_message(offset, None, stream, magic=magic, codec=codec, **given)  # type: ignore[arg-type]


def refused(log: bytes, rules: CompactionRules, end_offset: int = 100) -> CorruptFile:
    segment = ReferenceSegment(0, end_offset, log, 5)
    with pytest.raises(CorruptFile) as caught:
        compact([segment], rules)
    assert caught.value.file == as_input(segment).file
    return caught.value


FIRST = build_batch([Record(0, 5, b"first", b"v")])


@pytest.mark.parametrize("timestamp_ms", [-2, -(2**63)])
@pytest.mark.parametrize("is_wrapped", [False, True])
def test_a_legacy_timestamp_below_none_has_a_place(timestamp_ms: int, is_wrapped: bool) -> None:
    if is_wrapped:
        odd = wrapper(2, [build_legacy_message(at, b"k%d" % at, b"v", timestamp_ms=timestamp_ms) for at in range(2)])
    else:
        odd = build_legacy_message(2, b"k", b"v", timestamp_ms=timestamp_ms)
    error = refused(FIRST + odd, CONVERTS)
    assert error.position == len(FIRST)
    assert error.offset == 2
    assert str(timestamp_ms) in error.what
    segment = ReferenceSegment(0, 3, FIRST + odd, 5)
    assert compact([segment], RULES)[1] == [FIRST + odd]


def inner(*offsets: int) -> list[bytes]:
    return [build_legacy_message(offset, b"k%d" % number, b"v") for number, offset in enumerate(offsets)]


@pytest.mark.parametrize("rules", [RULES, CONVERTS, replace(RULES, kafka_4_3=True)])
@pytest.mark.parametrize(
    ("odd", "what"),
    [
        (lambda: wrapper(5, inner(0, 1, 2, 3, 4, 5, 6)), "a message stored at offset 6, above its own offset 5"),
        (lambda: wrapper(5, inner(0, 5)), "messages at offsets 0 to 5, expected ascending ones from 1 to 5"),
        (lambda: wrapper(5, inner(3, 2, 4)), "offsets that do not ascend"),
        (lambda: wrapper(5, inner(3, 3)), "offsets that do not ascend"),
        (lambda: wrapper(5, inner(-5, 3)), "offsets that do not ascend"),
        (lambda: wrapper(5, inner(-(2**63), 2**63 - 1)), "offsets that do not ascend"),
        (
            lambda: wrapper(5, inner(2**63 - 1)),
            "a message stored at offset 9223372036854775807, above its own offset 5",
        ),
        (lambda: wrapper(5, inner(0, 5), magic=0), "messages at offsets 0 to 5, expected ascending ones from 1 to 5"),
        (lambda: wrapper(5, inner(4, 6), magic=0), "messages at offsets 4 to 6, expected ascending ones from 1 to 5"),
    ],
)
def test_odd_offsets_within_a_legacy_wrapper_have_a_place(
    odd: Callable[[], bytes], what: str, rules: CompactionRules
) -> None:
    error = refused(FIRST + odd(), rules)
    assert (error.position, error.offset) == (len(FIRST), 5)
    assert what in error.what


def mutated(random: Random, batch: bytes) -> bytes:
    """Some bytes of a batch changed, in its header, its records or, decompressed, what it holds; its size field is right."""
    data = bytearray(batch)
    codec_at = 22 if data[16] == 2 else 17
    codec = data[codec_at] & 7
    kind = random.choice(["header", "body", "inside", "field"])
    if kind == "inside" and codec and data[16] == 2:
        body = bytearray(decompress(codec, bytes(data[61:])))
        changed(random, body, 0, len(body))
        data[61:] = compress(codec, bytes(body))
    elif kind == "inside" and codec:
        at = 30 if data[16] == 1 else 22  # the length of the value, behind the key that a wrapper does not have
        stream = decompress(codec, bytes(data[at + 4 :]), magic=data[16])
        data[at + 4 :] = compress(codec, inside_out(random, stream), data[16])
        data[at : at + 4] = (len(data) - at - 4).to_bytes(4)
    elif kind == "field":
        # Numbers at their borders, where a field may be.
        width = random.choice([1, 2, 4, 8])
        at = random.randrange(16, max(17, min(len(data), 61) - width))
        if data[16] == 1 and random.random() < 0.5:
            at, width = 18, 8  # the timestamp
        data[at : at + width] = border(random, width)
    else:
        begin, end = (0, min(61, len(data))) if kind == "header" else (min(61, len(data) - 1), len(data))
        changed(random, data, begin, end)
    data[8:12] = (len(data) - 12).to_bytes(4)
    return resealed(bytes(data))


def border(random: Random, width: int) -> bytes:
    """A signed number of so many bytes at the border of its range, or of what it may be."""
    limit = 2 ** (8 * width - 1)
    return random.choice([0, 1, -1, -2, limit - 1, -limit, random.randrange(100)]).to_bytes(width, signed=True)


def changed(random: Random, data: bytearray, begin: int, end: int) -> None:
    for _ in range(random.randint(1, 3)) if end > begin else ():
        data[random.randrange(begin, end)] = random.choice([0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)])


def inside_out(random: Random, stream: bytes) -> bytes:
    """A set of legacy messages of which one is changed, with right checksums."""
    messages, at = list[bytes](), 0
    while at < len(stream):
        size = int.from_bytes(stream[at + 8 : at + 12]) + 12
        messages.append(stream[at : at + size])
        at += size
    number = random.randrange(len(messages))
    message = bytearray(messages[number])
    if random.random() < 0.5:
        changed(random, message, 0, len(message))
    else:
        at = random.choice([0, 18])  # offset, or timestamp of magic 1
        message[at : at + 8] = border(random, 8)
    message[8:12] = (len(message) - 12).to_bytes(4)
    messages[number] = resealed(bytes(message))
    return b"".join(messages)


def odd_log(random: Random, log: bytes) -> bytes:
    batches = [
        log[position : position + size]
        for columns in scan_bytes(log)
        for position, size in zip(columns.position.tolist(), columns.size_bytes.tolist(), strict=True)
    ]
    for _ in range(random.randint(1, 2)) if batches else ():
        legacy = [number for number, batch in enumerate(batches) if batch[16] < 2]
        number = random.choice(legacy) if legacy and random.random() < 0.5 else random.randrange(len(batches))
        with suppress(CorruptFile):  # what was changed before may not decompress
            batches[number] = mutated(random, batches[number])
    return b"".join(batches)


def readers(
    random: Random, log: bytes, base_offset: int, end_offset: int, file: Path
) -> Iterator[Callable[[], object]]:
    """Each reads all of a segment."""

    def state() -> None:
        table, digest, builder = ProducerTable.blank(base_offset), DigestBuilder(base_offset), IndexBuilder(base_offset)
        for columns in scan_bytes(log, base_offset=base_offset):
            builder.add(columns)
            digest.add(columns.facts())
            table, ended = replay(table, columns.facts())
            builder.finish(ended)

    def check() -> None:
        def read_at(position: int, buffer: memoryview) -> int:
            piece = log[position : position + len(buffer)]
            buffer[: len(piece)] = piece
            return len(piece)

        expected = ExpectedLog(base_offset, end_offset, 1, 0, None, None)
        indexes = {PartName.OFFSET_INDEX: b"", PartName.TIME_INDEX: b"", PartName.TRANSACTION_INDEX: b""}
        check_log(read_at, len(log), expected, indexes, file="log", indexes_file="indexes")

    yield state
    yield check
    file.write_bytes(log)
    yield lambda: list(dump_batches(file, base_offset=base_offset))
    yield lambda: list(dump_records(file, base_offset=base_offset))
    segment = ReferenceSegment(base_offset, end_offset, log, 5)
    for legacy_format in LegacyFormat:
        rules = replace(
            RULES,
            strategy=random.choice(list(Strategy)),
            header=VERSION_HEADER,
            legacy_format=legacy_format,
        )
        yield lambda rules=rules: compact([segment], rules)  # type: ignore[misc]


@pytest.mark.parametrize("seed", range(8))
def test_changed_batches_with_right_checksums_raise_errors_of_ours(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    shape = replace(CLEANER, legacy=seed % 4 > 0, compacted_before=False)
    for segment in random_log(seed, shape).segments:
        if not segment.log:
            continue
        for _ in range(12):
            log = odd_log(random, segment.log)
            end_offset = segment.base_offset + 2**31
            for read in readers(random, log, segment.base_offset, end_offset, tmp_path / "odd.log"):
                with suppress(SidecarError, ProducerStateError):
                    read()


def test_the_last_offsets_that_a_segment_can_have() -> None:
    base_offset = 2**63 - 10
    log = build_batch([Record(base_offset, 5, b"k", b"v")])
    columns = list(scan_bytes(log, base_offset=base_offset))
    assert int(columns[0].base_offset[0]) == base_offset
    segment = ReferenceSegment(base_offset, base_offset + 1, log, 5)
    assert compact([segment], RULES, partition_of([(base_offset, log, 5)]))[1] == [log]
