"""What holds for all tests."""

from __future__ import annotations

import os

from hypothesis import settings

# Workers of pytest-xdist are told the width of a terminal, which is not that of the pipes that programs under test write to.
os.environ.pop("COLUMNS", None)

# A kernel is compiled within whichever example calls it first, so single examples have no deadline; whole tests have one.
# The gate asks the same questions each time; new examples are found where people work.
settings.register_profile("default", deadline=None, print_blob=True, derandomize=bool(os.environ.get("CI")))
settings.load_profile("default")
