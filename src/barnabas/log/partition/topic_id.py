"""The id of a partition's topic, stored in `partition.metadata` beside the segments."""

from __future__ import annotations

from barnabas.errors import InconsistentTopicId
from barnabas.log.checkpoints import id_to_text, read_topic_id, write_topic_id
from barnabas.log.file_system import FileSystem
from barnabas.log.names import PARTITION_METADATA


class TopicIdFile:
    """Owns the topic id of one log. Once there is one, it never changes.

    Threads: the caller of `assign` holds the log's lock. Any thread may read `value`.
    """

    __slots__ = ("_fs", "value")

    def __init__(self, fs: FileSystem, directory: str, *, is_new: bool = False) -> None:
        self._fs = fs
        self.value: bytes | None = None if is_new else read_topic_id(fs, f"{directory}/{PARTITION_METADATA}")

    def assign(self, directory: str, topic_id: bytes, *, syncs: bool) -> None:
        """Writes the id to the log's directory. Raises InconsistentTopicId if the log belongs to another topic."""
        if self.value is None:
            write_topic_id(self._fs, f"{directory}/{PARTITION_METADATA}", topic_id, syncs=syncs)
            self.value = topic_id
        elif self.value != topic_id:
            raise InconsistentTopicId(
                f"{directory} belongs to the topic with id {id_to_text(self.value)}, not to {id_to_text(topic_id)}"
            )
