"""Settings as tests load them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sidecar.config import load_settings
from sidecar.errors import SettingsError

URL = {"store.url": "s3://bucket/prefix"}


def a_file(directory: Path, text: str) -> Path:
    path = directory / "sidecar.yaml"
    path.write_text(text)
    return path


def refusal(**arguments: Any) -> str:
    with pytest.raises(SettingsError) as raised:
        load_settings(**arguments)
    return str(raised.value)
