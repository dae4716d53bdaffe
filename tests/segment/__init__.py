"""Tests of `sidecar.segment`."""
