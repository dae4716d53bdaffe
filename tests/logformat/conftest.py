"""No deadlines for properties here: a kernel is compiled within whichever example calls it first."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("kernels", deadline=None)
settings.load_profile("kernels")
