"""One segment: its batches in one pass, its indexes, its producer snapshot, its open transactions, the check of its log."""
