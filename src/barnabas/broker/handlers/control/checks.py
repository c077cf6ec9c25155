"""What must hold in a request of a controller before it is carried out.

A process that is not a controller can send such a request, as in Apache Kafka without an authorizer. The epochs of the
request fence it. Topics are names of directories, and partitions are places in lists, so these are checked.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from barnabas.coordination.metadata.topic_names import is_legal_topic_name
from barnabas.errors import InvalidRequest

# More partitions than any cluster has. A list of a topic's partitions is as long as its highest index.
PARTITION_INDEX_MAX: Final = 200_000


def check_partitions(topic: str, indexes: Iterable[int]) -> None:
    """Raises InvalidRequest."""
    if not is_legal_topic_name(topic):
        raise InvalidRequest(f"{topic[:40]!r} is not the name of a topic")
    for index in indexes:
        if not 0 <= index <= PARTITION_INDEX_MAX:
            raise InvalidRequest(f"{topic} has no partition {index}")
