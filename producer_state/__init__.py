"""Kafka's producer state: snapshot files, replay rules, digests of segments, and where a replay may begin.

Pure: no files, no clock, no settings; its input is a table of batch facts. It knows nothing of `sidecar`.
"""
