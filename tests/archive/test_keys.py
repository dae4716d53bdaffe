"""Names of objects: built, read back, and refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from sidecar.archive import keys
from sidecar.archive.keys import Lineage
from sidecar.compactor.archive.stored_parts import STAGING
from sidecar.config.model import BrokerSettings
from sidecar.errors import SettingsError
from sidecar.logformat.metadata_files import uuid_bytes
from sidecar.model import TopicPartition
from sidecar.storage.store_clock import PROBE_FOLDER
from tests.archive.builders import CLUSTER_ID, TOPIC_ID, an_id
from tests.fakes.seeded_randomness import SeededRandomness

# Kafka's Uuid 01234567-89ab-cdef-fedc-ba9876543210
GOLDEN_ID_BYTES = bytes.fromhex("0123456789abcdeffedcba9876543210")


def test_ids_have_kafkas_form() -> None:
    assert keys.id_of(GOLDEN_ID_BYTES) == TOPIC_ID


@given(st.binary(min_size=16, max_size=16))
def test_every_id_reads_back(sixteen: bytes) -> None:
    text = keys.id_of(sixteen)
    assert keys.is_id(text)
    assert uuid_bytes(text) == sixteen


@pytest.mark.parametrize(
    "text", ["", "0", TOPIC_ID[:-1], TOPIC_ID + "A", TOPIC_ID[:-1] + "B", "/" + TOPIC_ID[1:], TOPIC_ID[:-1] + "\n"]
)
def test_what_is_no_id_is_refused(text: str) -> None:
    assert not keys.is_id(text)


class Drawn(SeededRandomness):
    """These first."""

    def __init__(self, draws: Iterator[bytes]) -> None:
        super().__init__(0)
        self._draws = draws

    def random_bytes(self, count: int) -> bytes:
        return next(self._draws)[:count]


def test_fresh_ids_pass_over_reserved_ones_and_leading_dashes() -> None:
    draws = iter([bytes(16), b"\xfb" + bytes(15), bytes(15) + b"\x01", GOLDEN_ID_BYTES])
    assert keys.fresh_id(Drawn(draws)) == TOPIC_ID
    assert next(draws, None) is None


def test_a_lineage_and_its_objects() -> None:
    lineage = Lineage(CLUSTER_ID, TopicPartition("a.b_c-d", 12), "0")
    assert lineage.root == f"{CLUSTER_ID}/a.b_c-d/12/0"
    assert keys.parse_root(lineage.root) == lineage
    assert keys.commit_key(7) == "commits/00000000000000000007.json"
    assert keys.checkpoint_key(99) == "checkpoints/00000000000000000099.json"
    assert keys.log_key(1170, TOPIC_ID) == f"segments/00000000000000001170-{TOPIC_ID}.log"
    assert keys.indexes_key(1170, TOPIC_ID) == f"segments/00000000000000001170-{TOPIC_ID}.indexes"
    assert (
        keys.below(lineage.root, keys.commit_key(0)) == f"{CLUSTER_ID}/a.b_c-d/12/0/commits/00000000000000000000.json"
    )


@given(st.integers(0, keys.OFFSET_MAX), st.sampled_from([".log", ".indexes"]))
def test_segment_keys_read_back(base_offset: int, suffix: str) -> None:
    segment_id = an_id(base_offset)
    key = keys.log_key(base_offset, segment_id) if suffix == ".log" else keys.indexes_key(base_offset, segment_id)
    assert keys.parse_segment_key(key) == keys.SegmentObject(base_offset, segment_id, suffix)


@given(st.integers(0, keys.OFFSET_MAX))
def test_numbers_read_back_and_sort_as_keys_do(number: int) -> None:
    assert keys.parse_number(keys.commit_key(number)) == number
    assert keys.parse_number(keys.checkpoint_key(number)) == number
    assert (keys.commit_key(number) < keys.commit_key(12345)) == (number < 12345)


@given(st.text(max_size=80))
def test_any_text_is_a_key_of_ours_or_none(text: str) -> None:
    for parse, build in ((keys.parse_number, keys.commit_key),):
        number = parse(text)
        assert number is None or text in {build(number), keys.checkpoint_key(number)}
    found = keys.parse_segment_key(text)
    assert found is None or text.startswith(f"segments/{found.base_offset:020d}-{found.segment_id}")


@pytest.mark.parametrize(
    "key",
    [
        "segments/00000000000000000000.log",
        f"segments/99999999999999999999-{TOPIC_ID}.log",
        f"segments/0000000000000000000x-{TOPIC_ID}.log",
        f"segments/00000000000000000000-{TOPIC_ID}.txt",
        f"segments/00000000000000000000-{TOPIC_ID}.log.tmp",
        f"other/00000000000000000000-{TOPIC_ID}.log",
    ],
)
def test_foreign_segment_keys_are_none(key: str) -> None:
    assert keys.parse_segment_key(key) is None


@pytest.mark.parametrize(
    "root", ["", "a/b/0", "a/b/0/0/x", "a/b/-1/0", "a/b/01/0", "a/b/x/0", "a/b/0/y", "a/../0/0", "./b/0/0"]
)
def test_what_is_no_lineage_is_refused(root: str) -> None:
    with pytest.raises(SettingsError):
        keys.parse_root(root)


@pytest.mark.parametrize("cluster_id", ["", ".", "..", "a/b", "a b", "x" * 250, "ä"])
def test_a_cluster_id_must_be_fit_for_a_key(cluster_id: str) -> None:
    with pytest.raises(SettingsError, match="cluster id"):
        Lineage(cluster_id, TopicPartition("t", 0), "0")


def test_folders_of_ours_are_distinguished_from_others() -> None:
    assert keys.is_incarnation_folder("0")
    assert keys.is_incarnation_folder(TOPIC_ID)
    assert not keys.is_incarnation_folder("1")
    assert keys.is_partition_folder("0")
    assert not keys.is_partition_folder("00")
    assert not keys.is_partition_folder("2147483648")


def test_no_cluster_has_the_name_of_a_folder_that_is_emptied() -> None:
    assert {PROBE_FOLDER, STAGING.strip("/")} == keys.RESERVED_FOLDERS
    for name in keys.RESERVED_FOLDERS:
        with pytest.raises(SettingsError, match="cluster id"):
            Lineage(name, TopicPartition("orders", 0), TOPIC_ID)
        with pytest.raises(ValidationError, match="cluster id"):
            BrokerSettings(cluster_id=name)
        assert Lineage(CLUSTER_ID, TopicPartition(name, 0), TOPIC_ID).topic_partition.topic == name
