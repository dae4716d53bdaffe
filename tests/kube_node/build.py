"""Builds the images of the node, next to the image under test and in the same way (tests/image/build.py)."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.image import build
from tests.servers.dist import NEWEST_KAFKA, cache_directory, go_binary, kafka_libs
from tests.servers.kubernetes_node import PAUSE_IMAGE

KAFKA_IMAGE = f"localhost/kafka:{NEWEST_KAFKA}"
S3_IMAGE = "localhost/versitygw:test"
_TARGETS = {"pause": PAUSE_IMAGE, "s3": S3_IMAGE, "kafka": KAFKA_IMAGE}
IMAGES = (*_TARGETS.values(), build.IMAGE)


def build_images() -> None:
    """All of `IMAGES`. Layers are kept until their files change."""
    build.build()
    with tempfile.TemporaryDirectory(dir=cache_directory() / "image") as name:
        context = Path(name) / "context"
        shutil.copytree(Path(__file__).parent / "images", context)
        shutil.copytree(kafka_libs(NEWEST_KAFKA), context / "libs")
        shutil.copy2(go_binary("versitygw"), context / "versitygw")
        arguments = [
            "--layers",
            "--force-rm",
            "--pull-never",
            "--build-arg",
            f"BASE={build.BASE}",
            "--build-arg",
            f"IMAGE={build.IMAGE}",
        ]
        for target, image in _TARGETS.items():
            build.buildah("bud", *arguments, "--target", target, "-t", image, str(context))


def image_id(image: str) -> str:
    """It changes with the content."""
    return build.buildah("images", "--quiet", "--no-trunc", image).strip()


@contextmanager
def exported(image: str) -> Iterator[Path]:
    """A `docker save` archive of an image."""
    with tempfile.TemporaryDirectory(dir=cache_directory() / "image") as name:
        archive = Path(name) / "image.tar"
        build.buildah("push", "--quiet", image, f"docker-archive:{archive}:{image}")
        yield archive
