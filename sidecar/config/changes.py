"""What is different between two settings, whether a process that runs may take it over, and a name for each state."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

from sidecar.config.loading import LoadedSettings
from sidecar.config.paths import all_settings, value_at
from sidecar.logformat.files import FileStamp, stamp_of

_FINGERPRINT_DIGITS = 12


class SettingsSource:
    """Where the settings of this process come from: `loaded` at its start, and `read` again later."""

    def __init__(
        self, file: Path | None, read: Callable[[], LoadedSettings], set_up_logs: Callable[[LoadedSettings], None]
    ) -> None:
        """Read for the first time. Raises SettingsError. `read`: of flags, environment and file; raises it, too."""
        self._file = file
        self.read = read
        self.set_up_logs = set_up_logs
        # Before the reading: what comes after it must not be missed.
        self.loaded_state = self.state()
        self.loaded = read()

    def state(self) -> FileStamp | None:
        """Which file it is and in which state; None where there is none to see.

        A Kubernetes ConfigMap is exchanged by a symbolic link above the file: device and inode are those of what it leads to.
        """
        return None if self._file is None else stamp_of(self._file)


def changes_between(old: LoadedSettings, new: LoadedSettings) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Paths of settings with other values than before: those that may change at run time, and those that need a restart.

    A reloadable one also counts as changed if it is set now, and was not: an operator's value overrides the broker's.
    """
    reloadable, fixed = [], []
    for path, setting in all_settings().items():
        is_another = value_at(old.settings, path) != value_at(new.settings, path)
        if setting.is_reloadable and (is_another or (path in old.sources) != (path in new.sources)):
            reloadable.append(path)
        elif is_another:
            fixed.append(path)
    return tuple(reloadable), tuple(fixed)


def fingerprint(loaded: LoadedSettings) -> str:
    """The same for the same values, wherever they come from. Secrets do not go into it: it is shown."""
    values = {path: entry["value"] for path, entry in loaded.shown().items()}
    text = json.dumps(values, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:_FINGERPRINT_DIGITS]
