"""A real S3 answer of 501 or 405 to ListMultipartUploads: found by the probe, logged once, and everything else works."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from sidecar.errors import StoreUnsafe, StoreUnsupported
from sidecar.storage.leftovers import list_uploads
from sidecar.storage.probe import probe_store
from tests.archive.example import write_example
from tests.cli.running import in_this_process
from tests.fakes.manual_clock import ManualClock
from tests.servers.fault_proxy import Break, Fault, fault_proxy
from tests.storage.s3_servers import ACCESS_KEY, REGION, SECRET_KEY, new_bucket, s3_store

UNRELATED = re.compile("checksum|storage_class|encryption|s3:List")


@pytest.mark.parametrize(("status", "code"), [(501, "NotImplemented"), (405, "MethodNotAllowed")])
def test_everything_but_the_listing_works(status: int, code: str, moto_endpoint: str, tmp_path: Path) -> None:
    bucket = new_bucket(moto_endpoint)
    with fault_proxy(moto_endpoint) as proxy, s3_store(proxy.endpoint_url, bucket) as store:
        proxy.faults = [Fault("GET", Break.STATUS, "uploads", times=10_000, status=status, code=code)]
        with pytest.raises(StoreUnsupported, match=code):
            list(store.unfinished_uploads(""))
        listed = list_uploads(store, "")
        assert code in listed.not_listed
        assert not UNRELATED.search(f"{listed.not_listed} {listed.advice}")
        with capture_logs() as logs:
            probe_store(store, clock=ManualClock())
        assert [(entry["event"], entry["function"]) for entry in logs] == [
            ("store_function_missing", "list unfinished uploads")
        ]
        assert not UNRELATED.search(logs[0]["finding"])
        assert list(store.list("")) == []
        write_example(store)
        settings = tmp_path / "settings.json"
        own = {"endpoint_url": proxy.endpoint_url, "region": REGION, "addressing_style": "path"}
        own |= {"access_key_id": ACCESS_KEY, "secret_access_key": SECRET_KEY}
        settings.write_text(json.dumps({"store": {"url": store.url, "s3": own}}), encoding="utf-8")
        verified = in_this_process("--config", settings, "--json", "verify")
        assert verified.code == 0, verified
        assert [row["unfinished_uploads"] for row in verified.lines() if "unfinished_uploads" in row] == [None]
        cleared = in_this_process("--config", settings, "--json", "gc")
        assert cleared.code == 0, cleared
        assert "AbortIncompleteMultipartUpload" in cleared.err
        assert not UNRELATED.search(cleared.err)
        assert {row["unfinished_uploads"] for row in cleared.lines()} == {None}


@pytest.mark.parametrize("page", [{}, {"NextKeyMarker": "a"}, {"NextKeyMarker": "a", "NextUploadIdMarker": ""}])
def test_a_listing_of_uploads_that_does_not_go_on_is_refused(
    page: dict[str, str], moto_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with s3_store(moto_endpoint, new_bucket(moto_endpoint)) as store:
        monkeypatch.setattr(store, "_uploads_page", lambda **_parameters: {**page, "IsTruncated": True})
        with pytest.raises(StoreUnsafe, match="does not continue"):
            list(store.unfinished_uploads(""))
