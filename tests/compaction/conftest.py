"""One JVM for all tests of this directory that ask Kafka."""

from __future__ import annotations

from tests.oracle.conftest import oracle

__all__ = ["oracle"]
