"""Tests that start real Kafka brokers and S3 servers; each carries the marker `real`."""
