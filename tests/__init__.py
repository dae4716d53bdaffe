"""Tests of sidecar and producer_state; `tests.servers` starts real servers, `tests.golden` holds real log directories."""
