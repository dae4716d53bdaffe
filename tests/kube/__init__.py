"""The chart and the recipes on a real API server: what it admits, what it refuses, and what is left (`make kube-test`)."""
