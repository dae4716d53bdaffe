"""What holds for all tests."""

from __future__ import annotations

from hypothesis import settings

# A kernel is compiled within whichever example calls it first, so single examples have no deadline; whole tests have one.
settings.register_profile("default", deadline=None, print_blob=True)
settings.load_profile("default")
