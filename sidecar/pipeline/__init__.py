"""One partition on its way into the archive: its segments are planned, held open, prepared, uploaded and committed.

Stages hand frozen values on; decisions are pure functions, effects go through the ports.
"""
