"""The whole program against every S3 server of tests/servers/stores.py, and behind a proxy that breaks requests."""
