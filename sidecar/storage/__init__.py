"""Object stores behind `ports.ObjectStore`: S3 through boto3, directories, and any other fsspec file system.
`inspect` opens S3 through s3fs (`opening.open_to_read`).

Foreign exceptions become `sidecar.errors.StoreError` here and nowhere else. One layer repeats requests, ours; a put whose
outcome is unknown is never repeated blindly. What depends on the store's honesty is probed at the start, not assumed.
"""
