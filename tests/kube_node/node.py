"""The node of a test run: with its images, or one that `python -m tests.kube_node up` keeps."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kube_node.build import IMAGES, exported, image_id
from tests.servers.dist import cache_directory
from tests.servers.kubernetes_node import KubernetesNode

DIRECTORY = "TESTS_OF_NODE_DIRECTORY"
"""Environment variable, only in the namespaces of the node: where its logs and state are."""
_held: KubernetesNode | None = None


@contextmanager
def node() -> Iterator[KubernetesNode]:
    """A started node that has all images; the one of `hold`, where this is its child."""
    if _held is not None:
        yield _held
        return
    kept = cache_directory() / "kube-node"
    kept.mkdir(exist_ok=True)
    # To import the images takes a minute. Of old ones nothing stays.
    record, wanted = kept / "images.json", {image: image_id(image) for image in IMAGES}
    is_new = not record.exists() or json.loads(record.read_text()) != wanted
    if is_new:
        record.unlink(missing_ok=True)
        shutil.rmtree(kept / "containerd", ignore_errors=True)
    with KubernetesNode(Path(os.environ[DIRECTORY]), kept / "containerd") as started:
        if is_new:
            for image in IMAGES:
                with exported(image) as archive:
                    started.load_image(archive)
            record.write_text(json.dumps(wanted))
        yield started


def hold() -> int:
    """Keeps a node, and runs pytest on it with the arguments of each line of the standard input; the end of the input ends it."""
    global _held
    with node() as _held:
        print(f"export KUBECONFIG={_held.api.client_environment['KUBECONFIG']}", flush=True)
        for line in sys.stdin:
            child = os.fork()
            if child == 0:
                # Nothing of this process may be closed by its copy.
                os._exit(pytest.main(["-p", "no:randomly", *shlex.split(line)]))
            os.waitpid(child, 0)
    return 0
