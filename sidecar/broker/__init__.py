"""Facts about the local broker: its identity, the partitions that it leads, and their last stable offsets.

`files` knows what its log dirs say, `live_facts` what the broker itself and its cluster answer. Nothing here decides what is
archived, and nothing is ever written to a broker.
"""
