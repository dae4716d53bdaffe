"""The policies of docs/reference/iam.md, enforced by a real S3 server."""
