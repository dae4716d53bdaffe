"""Tests of `sidecar.runner`."""
