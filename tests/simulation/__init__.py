"""A seeded simulation of the whole archiving process in virtual time, with segments that are offset ranges instead of bytes."""
