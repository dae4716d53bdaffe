"""Facts about the broker beside which we run: who it is, what it leads, how far its partitions are stable.

`files` knows what its log dirs say, `live_facts` what the broker itself and its cluster answer. Nothing here decides what is
archived, and nothing is ever written to a broker.
"""
