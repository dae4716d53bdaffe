"""Tests of the archive as values."""
