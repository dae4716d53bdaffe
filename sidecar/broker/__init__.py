"""Facts about the broker beside which we run: who it is, what it leads, how far its partitions are stable.

`files` knows what its log dirs say. Nothing here decides what is archived.
"""
