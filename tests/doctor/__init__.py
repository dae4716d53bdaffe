"""Tests of `doctor`."""
