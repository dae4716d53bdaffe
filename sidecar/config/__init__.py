"""What an operator may tune: one frozen model, and how it is put together from flags, environment, file and defaults.

Values only. Components are built from them elsewhere, each from its own section.
"""

from sidecar.config.compaction import CompactionPolicy, CompactionSettings, CompactionWhen
from sidecar.config.environment import read_assignments
from sidecar.config.loading import LoadedSettings, load_settings
from sidecar.config.model import HttpSettings, Settings
from sidecar.config.spark import SparkSettings

__all__ = [
    "CompactionPolicy",
    "CompactionSettings",
    "CompactionWhen",
    "HttpSettings",
    "LoadedSettings",
    "Settings",
    "SparkSettings",
    "load_settings",
    "read_assignments",
]
