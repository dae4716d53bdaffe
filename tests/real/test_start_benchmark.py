"""The benchmark of starts runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.start import BACKFILL, HELP, NOTHING, STATUS, upload_s
from tests.tiny_benchmarks import result_of


@pytest.mark.real
@pytest.mark.apart
def test_the_start_benchmark_runs(tmp_path: Path) -> None:
    rows = result_of("start", tmp_path)["rows"]
    assert [row["name"] for row in rows] == [NOTHING, HELP, STATUS, BACKFILL]
    assert all(row["seconds"] > 0 and row["ratio"] >= 1 for row in rows)


@pytest.mark.parametrize(
    ("operation", "key", "took_s"),
    [
        ("s3_PutObject", "a/00.log", 0.017),
        ("s3_CreateMultipartUpload", "a/00.log", 0.017),
        ("s3_PutObject", "a/00.indexes", None),
        ("s3_PutObject", "probe/1", None),
        ("s3_GetObject", "a/00.log", None),
    ],
)
def test_only_requests_that_upload_a_log_end_a_start(operation: str, key: str, took_s: float | None) -> None:
    before = f"key archive [27/November/2026:04:33:13 +0000] 127.0.0.1 key R5E5 {operation} {key}"
    assert upload_s(f"{before} /archive/{key} 200 - 320 0 17 18 - tiered-sidecar/0.1.0 -") == took_s
