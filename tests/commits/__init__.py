"""Tests of `sidecar.commits`."""
