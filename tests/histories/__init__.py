"""Whole histories: a broker's partition, every actor on its archive, faults at every store call, and a plain model beside them.

`python -m tests.histories` runs many; see `__main__`. A history is a value (`history.History`): the same value gives the same run.
"""
