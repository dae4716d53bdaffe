"""Finding lineages in a store: those of one partition, and all of an archive."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

from sidecar.archive.keys import (
    CHECKPOINTS,
    COMMITS,
    Lineage,
    below,
    is_cluster_id,
    is_incarnation_folder,
    is_name,
    is_partition_folder,
    partition_prefix,
)
from sidecar.errors import FROM_STORE, SidecarError
from sidecar.model import TopicPartition
from sidecar.ports import ObjectStore

WORKERS = 8


def find_lineages(store: ObjectStore, cluster_id: str, topic_partition: TopicPartition) -> tuple[Lineage, ...]:
    """The lineages of one partition, begun or only prepared, ascending by incarnation."""
    folders = store.list_folders(partition_prefix(cluster_id, topic_partition))
    return tuple(Lineage(cluster_id, topic_partition, name) for name in sorted(folders) if is_incarnation_folder(name))


def find_all_lineages(store: ObjectStore, include: Callable[[str], bool] = lambda _: True) -> tuple[Lineage, ...]:
    """Every lineage of an archive whose topic is included, ascending. Folders that are not ours are passed over."""

    def topics(cluster_id: str) -> list[tuple[str, str]]:
        found = filter(is_name, store.list_folders(f"{cluster_id}/"))
        return [(cluster_id, topic) for topic in found if include(topic)]

    def partitions(parent: tuple[str, str]) -> list[tuple[str, TopicPartition]]:
        cluster_id, topic = parent
        found = filter(is_partition_folder, store.list_folders(f"{cluster_id}/{topic}/"))
        return [(cluster_id, TopicPartition(topic, int(name))) for name in found]

    def lineages(parent: tuple[str, TopicPartition]) -> tuple[Lineage, ...]:
        return find_lineages(store, *parent)

    with ThreadPoolExecutor(WORKERS, thread_name_prefix="lineages") as pool:
        clusters = filter(is_cluster_id, store.list_folders(""))
        all_topics = chain.from_iterable(pool.map(topics, clusters))
        all_partitions = chain.from_iterable(pool.map(partitions, all_topics))
        return tuple(sorted(chain.from_iterable(pool.map(lineages, all_partitions))))


def has_commits(store: ObjectStore, lineages: Iterable[Lineage]) -> bool:
    """Whether any of these lineages has a commit. A process that was killed early leaves one with uploads only.

    One that cannot be listed counts as committed: whoever reads it reports the reason.
    """
    try:
        folders = (below(found.root, folder) for found in lineages for folder in (COMMITS, CHECKPOINTS))
        return any(True for folder in folders for _ in store.list(folder))
    except FROM_STORE:
        return True


def no_archive(store: ObjectStore) -> SidecarError:
    """The error of a store without any commit: its URL is more often mistyped than new."""
    return SidecarError(
        f"no archive at {store.url}: nothing is committed there; correct the URL, or wait for the first commit if it is new"
    )
