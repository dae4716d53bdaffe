"""The status page in a real browser, over the real program: its tests, and the screenshots of the docs (`make screenshots`)."""
