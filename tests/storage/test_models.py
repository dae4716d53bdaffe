"""Our loader of botocore's descriptions finds what botocore's own does."""

from __future__ import annotations

from pathlib import Path

import pytest
from botocore.exceptions import MissingServiceIdError, UnknownServiceError
from botocore.loaders import Loader

from sidecar.storage.s3.requests import ModelLoader, make_client
from sidecar.store_settings import S3Settings


@pytest.mark.parametrize("service", ["s3", "sts", "sso", "sso-oidc"])
@pytest.mark.parametrize("kind", ["service-2", "endpoint-rule-set-1", "paginators-1"])
def test_finds_what_botocore_finds(service: str, kind: str) -> None:
    """Of the store, and of the services that roles and single sign-on take."""
    assert ModelLoader().load_service_model(service, kind) == Loader().load_service_model(service, kind)


def test_reads_the_endpoints_as_botocore_does() -> None:
    assert ModelLoader().load_data("endpoints") == Loader().load_data("endpoints")


def test_knows_no_other_services() -> None:
    with pytest.raises(UnknownServiceError):
        ModelLoader().load_service_model("no-such-service", "service-2")


def test_searches_where_the_user_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    version = tmp_path / "s3" / "2030-01-01"
    version.mkdir(parents=True)
    (version / "service-2.json").write_text("{}")
    monkeypatch.setenv("AWS_DATA_PATH", str(tmp_path))
    with pytest.raises(MissingServiceIdError):  # the user's file describes nothing
        make_client(S3Settings(region="eu-central-1"))
