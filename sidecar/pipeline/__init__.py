"""The journey of a segment: discovered, planned, snapshotted, bundled, uploaded, committed, verified.

Stages hand frozen values on; decisions are pure functions, effects go through the ports.
"""
