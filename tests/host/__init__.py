"""Tests of `sidecar.host`."""
