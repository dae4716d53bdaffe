"""Tests of injection into pods."""
