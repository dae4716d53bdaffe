"""Tests of `sidecar.verify`."""
