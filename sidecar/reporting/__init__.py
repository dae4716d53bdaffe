"""Sinks of domain events: log lines, metrics, and the status model that `sidecar.http` renders. They decide nothing."""
