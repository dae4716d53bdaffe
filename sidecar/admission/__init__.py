"""Injection of the sidecar into broker pods when Kubernetes admits them. For clusters without MutatingAdmissionPolicy."""
