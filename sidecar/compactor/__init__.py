"""Which partitions are compacted, by which rule and when; the background worker. Pure where it decides."""
