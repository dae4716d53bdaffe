"""When a directory was made, as the file system of these tests tells it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from sidecar.host.log_dir_fingerprint import birth_ns


def test_a_birth_is_what_the_system_says_and_survives_a_new_name_and_content(tmp_path: Path) -> None:
    made = tmp_path / "made"
    made.mkdir()
    inode = made.stat().st_ino
    command = ["stat", "--format=%.9W", str(made)]
    reported = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout.strip()
    expected = int(reported.replace(".", "")) or None
    assert birth_ns(made, inode) == expected
    (made / "file").touch()
    renamed = made.rename(tmp_path / "renamed")
    assert birth_ns(renamed, inode) == expected
    assert birth_ns(made, inode) is None
    assert birth_ns(renamed, inode + 1) is None
