"""Tests of `sidecar.retention`."""
