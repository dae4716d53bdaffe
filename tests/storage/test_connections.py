"""Connections to the store: who reads with many threads takes none away from others, and none is thrown away."""

from __future__ import annotations

from threading import Barrier, Thread

import pytest

from sidecar.archive.actions import Lost
from sidecar.commits.commit_log import CommitLog
from sidecar.commits.lineages import find_all_lineages
from sidecar.verify.verify import verify_archive
from tests.archive.example import WRITER, many_partitions
from tests.storage.s3_servers import new_bucket, s3_store

POOL = "urllib3.connectionpool"
SEGMENTS_FETCHED_AT_ONCE_MAX = 64
"""`restore --workers`."""


@pytest.mark.real
def test_a_deep_check_of_many_partitions_throws_no_connection_away(
    versitygw_endpoint: str, caplog: pytest.LogCaptureFixture
) -> None:
    archive = many_partitions(16)
    for lineage in find_all_lineages(archive):
        log = CommitLog(archive, lineage.root, archive.clock)
        state = log.read()
        for _ in range(8):
            end_offset = state.end_offset or 0
            state = log.append([Lost(end_offset, end_offset + 1, "of no account here")], WRITER, state)
    with s3_store(versitygw_endpoint, new_bucket(versitygw_endpoint), concurrency=1) as store:
        for key, content in archive.objects.items():
            store.put_if_absent(key, content)
        found = list(verify_archive(store, archive.clock, deep=True))
    assert len(found) == 17
    assert not any(one.problems for one in found)
    assert [record.getMessage() for record in caplog.records if record.name == POOL] == []


def test_nor_do_as_many_streams_as_a_command_may_open(moto_endpoint: str, caplog: pytest.LogCaptureFixture) -> None:
    with s3_store(moto_endpoint, new_bucket(moto_endpoint), concurrency=1) as store:
        store.put_if_absent("an/object", b"content")
        begun = Barrier(SEGMENTS_FETCHED_AT_ONCE_MAX)
        read: list[bytes] = []

        def fetch() -> None:
            stream = store.stream("an/object", 3)
            first = next(stream)
            begun.wait(120)
            read.append(first + b"".join(stream))

        threads = [Thread(target=fetch) for _ in range(SEGMENTS_FETCHED_AT_ONCE_MAX)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert read == [b"content"] * SEGMENTS_FETCHED_AT_ONCE_MAX
    assert [record.getMessage() for record in caplog.records if record.name == POOL] == []
