"""From an archive back to a log directory that a broker starts from.

Reads the archive, writes below one log dir of a stopped broker. A partition directory gets its name last, when it is whole.
"""
