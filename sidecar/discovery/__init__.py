"""Finds out what lies in a broker's log directories: partitions and their rolled segments.

A scan of the directories is the truth; file-system events only say that a scan is worth while. Nothing is ever written.
"""
