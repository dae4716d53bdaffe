"""Object stores behind `ports.ObjectStore`: S3 through boto3, directories, and any other fsspec file system.

Foreign exceptions become `sidecar.errors.StoreError` here and nowhere else. One layer repeats requests, ours; a put whose
outcome is unknown is never repeated blindly. What depends on the store's honesty is probed at the start, not assumed.
"""

from sidecar.storage.opening import open_existing, open_store
from sidecar.storage.probe import probe_store
from sidecar.storage.source import BytesSource, FileSource

__all__ = ["BytesSource", "FileSource", "open_existing", "open_store", "probe_store"]
