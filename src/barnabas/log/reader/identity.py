"""Which cluster, broker and topic the files of a log directory belong to.

A reader that gets a path from a broker checks this first: on another machine, other files may have the same path.
"""

from __future__ import annotations

import os

from barnabas.errors import KafkaStorageError
from barnabas.log import checkpoints, names
from barnabas.log.file_system import DiskFileSystem
from barnabas.model import TopicPartition


def belongs_to(log_directory: str, cluster_id: str, broker_id: int) -> bool:
    """Whether the directory exists here and belongs to the broker; False if it cannot be read."""
    try:
        found = checkpoints.read_meta_properties(
            DiskFileSystem(), os.path.join(log_directory, names.META_PROPERTIES)
        )
    except (KafkaStorageError, OSError):
        return False
    return found is not None and found.cluster_id == cluster_id and found.broker_id == broker_id


def partition_directory(log_directory: str, partition: TopicPartition, topic_id: str) -> str | None:
    """The directory of a partition of this topic; None if there is none, or if it is of another topic of that name."""
    directory = os.path.join(log_directory, names.partition_dir(partition))
    try:
        found = checkpoints.read_topic_id(DiskFileSystem(), os.path.join(directory, names.PARTITION_METADATA))
    except (KafkaStorageError, OSError):
        return None
    return directory if found is not None and checkpoints.id_to_text(found) == topic_id else None
