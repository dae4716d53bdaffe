"""Restores out of archives of golden directories."""
