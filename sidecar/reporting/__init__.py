"""Sinks of domain events: log lines, and the status model that `sidecar.http` renders. So is `Metrics`. They decide nothing."""
