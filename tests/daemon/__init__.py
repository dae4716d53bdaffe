"""Tests of the supervisor and the loop in this process."""
