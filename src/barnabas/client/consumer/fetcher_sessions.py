"""Fetch sessions (KIP-227), one per broker: after the first request only changes are named.

A session is the state of the last request on both sides: offsets, sizes and epochs by partition. Whenever the two sides
may disagree (a response is lost, the broker has dropped the session) the next request names everything and starts a new
session.
"""

from __future__ import annotations

from typing import Final

from barnabas.model import TopicPartition
from barnabas.protocol.messages.fetch_request import FetchPartition, FetchTopic, ForgottenTopic

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
EPOCH_MAX: Final = 0x7FFF_FFFF


class FetchSession:
    __slots__ = ("_told", "_topic_ids", "epoch", "session_id")

    def __init__(self) -> None:
        self.session_id = NO_SESSION
        self.epoch = INITIAL_EPOCH
        # The broker's state: offset, leader epoch and size by partition; and the ids of their topics.
        self._told: dict[TopicPartition, tuple[int, int, int]] = {}
        self._topic_ids: dict[str, bytes] = {}

    def next_request(
        self, wanted: dict[TopicPartition, FetchPartition], topic_ids: dict[str, bytes]
    ) -> tuple[list[FetchTopic], list[ForgottenTopic]]:
        """The changes that a request has to name: partitions to fetch, and partitions to forget.

        Topic ids are those of all wanted topics, all zeros if names are sent.
        """
        if any(topic_ids.get(topic, known) != known for topic, known in self._topic_ids.items()):
            # A topic was recreated, or names replace ids: the broker's state is about another topic.
            self.begin_anew()
        if self.epoch == INITIAL_EPOCH:
            self._told.clear()
            self._topic_ids.clear()
        named: dict[str, list[FetchPartition]] = {}
        told = self._told
        for partition, fetch in wanted.items():
            now = fetch.fetch_offset, fetch.current_leader_epoch, fetch.partition_max_bytes
            if told.get(partition) != now:
                told[partition] = now
                named.setdefault(partition.topic, []).append(fetch)
        forgotten: dict[str, list[int]] = {}
        if len(told) != len(wanted):
            for partition in [each for each in told if each not in wanted]:
                del told[partition]
                forgotten.setdefault(partition.topic, []).append(partition.partition)
        self._topic_ids.update(topic_ids)
        topics = [
            FetchTopic(topic=topic, topic_id=topic_ids[topic], partitions=partitions)
            for topic, partitions in named.items()
        ]
        gone = [
            ForgottenTopic(topic=topic, topic_id=self._topic_ids[topic], partitions=partitions)
            for topic, partitions in forgotten.items()
        ]
        return topics, gone

    def answered(self, session_id: int) -> None:
        """A request was answered without an error; 0 means that the broker keeps no session."""
        if session_id == NO_SESSION:
            self.session_id = NO_SESSION
            self.epoch = INITIAL_EPOCH
        else:
            self.session_id = session_id
            self.epoch = 1 if self.epoch == EPOCH_MAX else self.epoch + 1

    def begin_anew(self) -> None:
        """Both sides may disagree. The broker drops the session, if it still has it."""
        self.epoch = INITIAL_EPOCH

    def is_lost(self) -> None:
        """The broker does not know the session."""
        self.session_id = NO_SESSION
        self.epoch = INITIAL_EPOCH
