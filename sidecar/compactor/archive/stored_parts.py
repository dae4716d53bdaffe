"""Parts in the object store: for clusters, whose tasks share nothing else."""

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from sidecar.archive.keys import fresh_id, is_id
from sidecar.errors import PartitionError
from sidecar.host import process_store
from sidecar.model import ObjectKey
from sidecar.randomness import Randomness
from sidecar.rewriting.work_files import WorkFile, nameless_file
from sidecar.storage.source import FileSource
from sidecar.store_settings import StoreSettings

STAGING: Final = "staging/"
"""Below the archive's root, next to the clusters: `staging/<job id>/<8d number>-<id>.part`. Nothing there outlives its job."""

_PART = re.compile(r"staging/([^/]{22})/([0-9]{8})-([^/]{22})\.part", re.ASCII)


def is_staged_part(key: str) -> bool:
    """Whether a key has exactly the form of a part, so that nothing else is ever taken for one."""
    found = _PART.fullmatch(key)
    return found is not None and is_id(found[1]) and is_id(found[3])


@dataclass(frozen=True, slots=True)
class StoredParts:
    """`Parts` below `staging/<job_id>/`. A task's own copy waits in its temporary directory until it is whole."""

    in_store: ClassVar[bool] = True
    store: StoreSettings
    job_id: str
    randomness: Randomness

    @property
    def prefix(self) -> str:
        return f"{STAGING}{self.job_id}/"

    @contextmanager
    def writing(self, number: int) -> Iterator[WorkFile]:
        """See Parts. Of two attempts both are there, and hold the same."""
        with nameless_file(Path(tempfile.gettempdir())) as waiting:
            yield waiting
            if not waiting.size_bytes:
                return  # It is not used.
            key = ObjectKey(f"{self.prefix}{number:08d}-{fresh_id(self.randomness)}.part")
            source = FileSource(waiting.file.fileno(), waiting.size_bytes, key)
            process_store.store_of(self.store).upload(key, source)

    def pieces(self, number: int, size_bytes: int) -> Iterator[memoryview]:
        """See Parts. Raises StoreError."""
        store, place = process_store.store_of(self.store), f"{self.prefix}{number:08d}"
        key = next((facts.key for facts in store.list(f"{place}-")), None)
        if key is None:
            raise PartitionError(f"{place}: a part of this job no longer exists: compact again")
        left = size_bytes
        for content in store.stream(key):
            piece = memoryview(content)[:left]
            yield piece
            left -= len(piece)
            if not left:
                return
        raise PartitionError(f"{key}: this part of the job ends {left} bytes too early: compact again")

    def forget_all(self) -> None:
        """Take away whatever is left of the job. Raises StoreError."""
        store = process_store.store_of(self.store)
        store.delete([facts.key for facts in store.list(self.prefix)])
