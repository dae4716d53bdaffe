"""S3 by boto3: requests, errors, listings, reads and multipart uploads; and s3fs for reading a file at a time."""
