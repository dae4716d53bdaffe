"""Tests of `sidecar.compactor`."""
