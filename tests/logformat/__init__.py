"""Tests of sidecar.logformat."""
