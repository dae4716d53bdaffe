"""Which partitions are compacted, by which rule and when; the worker beside the uploads. Pure where it decides."""
