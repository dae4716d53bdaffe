"""Archived segments on their way into a log dir: fetched, checked, cut and changed in place."""
