"""Commits as bytes: one canonical form, and nothing unknown is believed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.archive.actions import (
    UNDONE,
    Add,
    AdoptTopicId,
    DeleteRecords,
    LossReason,
    Lost,
    Purge,
    Remove,
    action_from_json,
    action_to_json,
    compacted_by,
    is_compacted,
)
from sidecar.archive.commit import Commit, Writer, decode_commit, encode_commit
from sidecar.archive.state import empty_state
from sidecar.archive.strict_json import JsonObject, seal
from sidecar.errors import CorruptFile
from sidecar.model import LeaderEpoch, RawBatches, SnapshotOrigin, SnapshotProvenance, TopicPartition
from tests.archive.builders import LINEAGE, TOPIC_ID, a_commit, a_compacted, a_segment, an_id

KEY = "cluster/orders/3/0/commits/00000000000000000000.json"

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
offsets = st.integers(0, 2**62)
spans = st.tuples(offsets, st.integers(1, 10**6)).map(lambda pair: (pair[0], pair[0] + pair[1]))
ids = st.binary(min_size=8, max_size=8).map(an_id)
provenances = st.one_of(
    st.just(SnapshotProvenance(SnapshotOrigin.BROKER, exact=True)),
    st.builds(SnapshotProvenance, st.just(SnapshotOrigin.REBUILT), st.booleans(), offsets, st.none() | offsets),
)
segments = st.one_of(
    st.builds(
        lambda span, origin, timestamp, path: a_segment(
            *span,
            snapshot=origin,
            max_timestamp_ms=timestamp,
            source_path=path,
            leader_epochs=(LeaderEpoch(3, span[0]),),
        ),
        spans,
        provenances,
        st.integers(-(2**63), 2**63 - 1),
        texts,
    ),
    st.builds(lambda span, generation: a_compacted(*span, generation), spans, st.integers(1, 9)),
    st.builds(
        lambda span, first, last: replace(
            a_compacted(span[0], span[1]), compacted_from=RawBatches(span[0], span[1], first, last)
        ),
        spans,
        st.none() | st.integers(0, 2**32 - 1),
        st.integers(0, 2**32 - 1),
    ),
)
actions = st.one_of(
    st.builds(Add, segments),
    st.builds(lambda name, span, reason: Remove(name, *span, reason), ids, spans, texts),
    st.builds(AdoptTopicId, ids),
    st.builds(lambda span, reason: Lost(*span, reason), spans, texts),
    st.builds(Purge, st.lists(ids, max_size=3).map(tuple)),
    st.builds(DeleteRecords, st.integers(0, 2**63 - 1)),
)
commits = st.builds(
    lambda number, actions, writer: Commit(
        number,
        None if number == 0 else "ab" * 32,
        "0f" * 16,
        17,
        TopicPartition("orders", 3),
        TOPIC_ID,
        writer,
        actions,
    ),
    st.integers(0, 5),
    st.lists(actions, max_size=4).map(tuple),
    st.builds(Writer, st.integers(-1, 2**31 - 1), st.integers(-1, 2**31 - 1), texts, texts),
)


@given(commits)
@settings(deadline=None)
def test_a_commit_reads_back(commit: Commit) -> None:
    data = encode_commit(commit)
    assert decode_commit(data, KEY) == commit
    assert encode_commit(decode_commit(data, KEY)) == data


def test_the_reasons_of_losses_are_stored_as_they_always_were_and_read_as_values() -> None:
    assert {reason.name: reason.value for reason in LossReason} == {
        "NOT_ON_DISK": "no longer on the broker's disk when it was to be archived",
        "DELETED_FIRST": "deleted on purpose, by DeleteRecords, before it was archived",
    }
    for reason in (*LossReason, "other words"):
        plain = {"type": "lost", "base_offset": 1, "end_offset": 2, "reason": str(reason)}
        assert json.dumps(action_to_json(Lost(1, 2, reason))) == json.dumps(plain)
        found = action_from_json(JsonObject(dict(plain), KEY, ""))
        assert isinstance(found, Lost)
        assert found.reason == reason


@pytest.mark.parametrize(
    ("text", "compacted"),
    [
        ("compacted by offset", True),
        ("compacted by ", True),
        ("compaction undone", False),
        ("compaction undone by hand", False),
        ("Compacted by offset", False),
    ],
)
def test_the_reasons_of_removals_are_stored_as_they_always_were(text: str, compacted: bool) -> None:
    plain = {"type": "remove", "segment_id": an_id("a"), "reason": text, "base_offset": 1, "end_offset": 2}
    found = action_from_json(JsonObject(dict(plain), KEY, ""))
    assert found == Remove(an_id("a"), 1, 2, text)
    assert json.dumps(action_to_json(found)) == json.dumps(plain)
    assert is_compacted(text) == compacted
    assert compacted_by("offset") == "compacted by offset"
    assert UNDONE == "compaction undone"


def test_the_form_is_canonical() -> None:
    data = encode_commit(a_commit(empty_state(LINEAGE), Add(a_segment()), Lost(100, 200, "größer")))
    as_sorted = json.dumps(json.loads(data), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert data == as_sorted.encode("utf-8")


@given(st.binary(max_size=300))
def test_any_bytes_are_called_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptFile, match="commits/"):
        decode_commit(data, KEY)


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 200_000,
        b'{"format":' * 50_000,
        b'{"number":' + b"9" * 10_000 + b"}",
        b'{"number":NaN}',
        b'{"number":1e999}',
        b"null",
        b"[]",
        b"\xff\xfe",
        b'{"format":"\\ud800"}',
        b"",
    ],
)
def test_hostile_bytes_are_called_corrupt(data: bytes) -> None:
    for hostile in (data, seal("commit", data)):
        with pytest.raises(CorruptFile):
            decode_commit(hostile, KEY)


def test_no_depth_of_nesting_is_too_deep_to_be_refused() -> None:
    """Of one depth or another the parser still reads what the text of the error could not show."""
    for depth in range(sys.getrecursionlimit()):
        with pytest.raises(CorruptFile):
            decode_commit(seal("commit", b'{"format":%s%s}' % (b"[" * depth, b"]" * depth)), KEY)


@given(st.data())
@settings(deadline=None, max_examples=300)
def test_a_changed_byte_anywhere_is_corrupt(data: st.DataObject) -> None:
    original = encode_commit(a_commit(empty_state(LINEAGE), Add(a_segment())))
    position = data.draw(st.integers(0, len(original) - 1))
    changed = bytearray(original)
    changed[position] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CorruptFile, match="does not match"):
        decode_commit(bytes(changed), KEY)


def changed(change: Callable[[Any], object]) -> bytes:
    """A good commit with one thing changed."""
    sealed = json.loads(
        encode_commit(
            a_commit(empty_state(LINEAGE), Add(a_segment(leader_epochs=(LeaderEpoch(0, 0), LeaderEpoch(2, 50)))))
        )
    )
    content = sealed["commit"]
    change(content)
    return seal("commit", json.dumps(content).encode())


def test_unknown_fields_are_ignored() -> None:
    plain = decode_commit(changed(lambda c: None), KEY)
    more = changed(
        lambda c: (c.update(colour="blue"), c["actions"][0]["segment"].update(taste=1), c["writer"].update(x=[]))
    )
    assert decode_commit(more, KEY) == plain


def segment_of(content: Any) -> Any:
    """The only segment."""
    return content["actions"][0]["segment"]


RAW = {"base_offset": 5, "end_offset": 100, "first_batch_crc": None, "last_batch_crc": "0000000a"}


def compacted(content: Any) -> Any:
    """The same as a compacted one."""
    segment_of(content).update(generation=1, strategy="offset")
    return segment_of(content)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.update(version=2), "release that knows version 2"),
        (lambda c: c.update(format="delta"), "format: expected 'tiered-sidecar-commit'"),
        (lambda c: c["actions"][0].update(type="teleport"), "action 'teleport' is unknown: a newer version"),
        (lambda c: c.update(number=True), "number: expected an integer"),
        (lambda c: c.update(number=-1), "number: expected an integer"),
        (lambda c: c.update(number=2**63), "number: expected an integer"),
        (lambda c: c.update(number=0.0), "number: expected an integer"),
        (lambda c: c.update(number=1), "previous_sha256: expected null in commit 0"),
        (lambda c: c.update(previous_sha256="00" * 32), "previous_sha256: expected null in commit 0"),
        (lambda c: c.update(nonce="XY" * 16), "nonce: expected 32 lower-case"),
        (lambda c: c.update(topic_id="short"), "topic_id: expected a 22-character id"),
        (lambda c: c.pop("writer"), "writer: expected an object, found nothing"),
        (lambda c: c["writer"].pop("leader_epoch"), r"writer\.leader_epoch"),
        (lambda c: c.update(actions={}), "actions: expected a list"),
        (lambda c: c.update(actions=[3]), "element 0"),
        (lambda c: segment_of(c).update(end_offset=0), "its end must lie above its base"),
        (lambda c: segment_of(c).update(log_key="../../etc/passwd"), "expected 'segments/"),
        (lambda c: segment_of(c).update(base_offset=5), "expected 'segments/"),
        (lambda c: segment_of(c)["parts"].pop("producer_snapshot"), "parts missing: producer_snapshot"),
        (lambda c: segment_of(c)["parts"].clear(), "does not name a part"),
        (lambda c: segment_of(c)["parts"]["log"].update(position=1), "at position 0"),
        (lambda c: segment_of(c)["parts"]["log"].update(crc32c="123"), r"parts\.log\.crc32c: expected 8"),
        (lambda c: segment_of(c)["parts"]["log"].update(size_bytes=-1), r"parts\.log\.size_bytes"),
        (
            lambda c: segment_of(c)["parts"]["log"].update(size_bytes=2**44),
            r": actions\[0\]\.segment \[.* part log claims bytes 0 to 17592186044416",
        ),
        (lambda c: segment_of(c)["parts"]["time_index"].update(position=2**28), "time_index claims bytes 268435456 to"),
        (
            lambda c: segment_of(c)["parts"]["time_index"].update(size_bytes=2**28),
            "at most 268435456. No release .* Until then, every command that reads it stops here",
        ),
        (lambda c: segment_of(c).update(leader_epochs=[[0]]), "pairs of epoch"),
        (lambda c: segment_of(c).update(leader_epochs=[[2, 0], [1, 5]]), "must ascend"),
        (lambda c: segment_of(c).update(leader_epochs=[[0, 100]]), "outside the segment"),
        (lambda c: segment_of(c).update(leader_epochs=[[-1, 0]]), "epochs from 0"),
        (lambda c: segment_of(c).update(generation=1), "compacted ones have both"),
        (lambda c: segment_of(c).update(strategy="offset"), "compacted ones have both"),
        (lambda c: segment_of(c)["snapshot"].update(origin="guess"), "broker or rebuilt"),
        (lambda c: segment_of(c)["snapshot"].update(exact=1), "true or false"),
        (lambda c: segment_of(c).update(strategy_parameters={"a": 1}), r"strategy_parameters\.a"),
        (lambda c: compacted(c).update(compacted_from=RAW | {"end_offset": 101}), "does not lie within"),
        (lambda c: compacted(c).update(compacted_from=RAW | {"end_offset": 5}), "does not lie within"),
        (lambda c: compacted(c).update(compacted_from=RAW | {"last_batch_crc": 7}), r"compacted_from\.last_batch_crc"),
        (lambda c: compacted(c).update(compacted_from=[]), "compacted_from: expected an object"),
    ],
)
def test_a_wrong_field_is_named(change: Callable[[Any], object], message: str) -> None:
    with pytest.raises(CorruptFile, match=message) as caught:
        decode_commit(changed(change), KEY)
    assert caught.value.file == KEY


def test_a_path_that_is_no_utf_8_can_be_committed() -> None:
    segment = a_segment(source_path=b"/data/\xff/x.log".decode("utf-8", "surrogateescape"))
    commit = a_commit(empty_state(LINEAGE), Add(segment))
    (action,) = decode_commit(encode_commit(commit), KEY).actions
    assert isinstance(action, Add)
    assert action.segment.source_path == "/data/\N{REPLACEMENT CHARACTER}/x.log"
