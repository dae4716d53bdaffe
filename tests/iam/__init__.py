"""The policies of docs/iam.md, enforced by a real S3 server."""
