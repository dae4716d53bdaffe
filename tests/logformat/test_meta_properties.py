from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.errors import CorruptFile
from sidecar.logformat.metadata_files import MetaProperties, read_meta_properties, read_properties


def test_version_0_of_a_zookeeper_broker() -> None:
    data = b"#\n#Thu Nov 19 10:00:00 UTC 2026\nbroker.id=7\nversion=0\ncluster.id=dXf3\\:_-x\n"
    assert read_meta_properties(data) == MetaProperties(0, "dXf3:_-x", 7, None)


def test_version_0_needs_nothing() -> None:
    assert read_meta_properties(b"") == MetaProperties(0, None, None, None)


def test_version_1_of_a_kraft_broker() -> None:
    data = b"#\nnode.id=3\ndirectory.id=3zVd2U4lQ4eDYrzFqMWBbA\nversion=1\ncluster.id=abc\n"
    assert read_meta_properties(data) == MetaProperties(1, "abc", 3, "3zVd2U4lQ4eDYrzFqMWBbA")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"version=2\n", "version 2"),
        (b"version=one\n", "version is 'one'"),
        (b"version=1\nnode.id=1\n", "'cluster.id'"),
        (b"version=1\ncluster.id=a\nbroker.id=1\n", "'node.id'"),
        (b"broker.id=\n", "broker.id is ''"),
        (b"broker.id=99999999999\n", "broker.id"),
        (b"cluster.id=\\u00zz\n", "malformed"),
    ],
)
def test_malformed_files_are_corrupt(data: bytes, reason: str) -> None:
    with pytest.raises(CorruptFile, match=reason):
        read_meta_properties(data, "meta.properties")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"a=b", {"a": "b"}),
        (b"a:b\r\nc = d \rd  e", {"a": "b", "c": "d ", "d": "e"}),
        (b"  ! note\n# note\n\n a\t=\tb", {"a": "b"}),
        (b"a\\=b\\:c\\ d=e", {"a=b:c d": "e"}),
        (b"a=b\\\n   c\\\\\nd=e", {"a": "bc\\", "d": "e"}),
        (b"a=\\u00e9\\t\\n\\z\xe9", {"a": "é\t\nzé"}),
        (b"a=b\\\n#c", {"a": "b#c"}),
        (b"a", {"a": ""}),
        (b"=b", {"": "b"}),
        (b"a==b", {"a": "=b"}),
        (b"a=1\na=2", {"a": "2"}),
        (b"a=b\\", {"a": "b"}),
    ],
)
def test_the_text_is_read_as_java_does(text: bytes, expected: dict[str, str]) -> None:
    assert read_properties(text) == expected


@given(st.binary(max_size=60) | st.text(alphabet="a=:\\ \n\ru0#\t", max_size=40).map(str.encode))
def test_any_bytes_are_properties_or_corrupt(data: bytes) -> None:
    with suppress(CorruptFile):
        assert read_meta_properties(data).version in {0, 1}
