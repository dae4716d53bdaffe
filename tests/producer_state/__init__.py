"""Tests of `producer_state`."""
