"""The fetch session of a follower (KIP-227): after its first request it names only what has changed.

A follower may have thousands of partitions of which few get records at a time, so the session knows which have changed
and never looks at the others. When both sides may disagree, the next request names everything and begins a new one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from barnabas.model import TopicPartition

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
EPOCH_MAX: Final = 0x7FFF_FFFF


class FollowerSession:
    """With `has_topic_ids` (Fetch version 13 and above), a topic that was created again is another one."""

    __slots__ = ("_changed", "_forgotten", "_has_topic_ids", "_known", "epoch", "session_id")

    def __init__(self, *, has_topic_ids: bool = True) -> None:
        self._has_topic_ids = has_topic_ids
        self.session_id = NO_SESSION
        self.epoch = INITIAL_EPOCH
        # What the leader fetches in this session, by the topic id that it was named with.
        self._known: dict[TopicPartition, bytes] = {}
        # What the next request names, in order; and what it has the leader forget.
        self._changed: dict[TopicPartition, bytes] = {}
        self._forgotten: dict[TopicPartition, bytes] = {}

    @property
    def is_full(self) -> bool:
        """Whether the next request names everything."""
        return self.epoch == INITIAL_EPOCH

    def __bool__(self) -> bool:
        """Whether a request would fetch anything."""
        return bool(self._known or self._changed)

    def want(self, key: TopicPartition, topic_id: bytes) -> None:
        """Has the next request name a partition: it is new, or something about it has changed."""
        known = self._known.get(key)
        if known is not None and known != topic_id:
            self.forget(key)
        forgotten = self._forgotten.get(key)
        if forgotten is not None and (forgotten == topic_id or not self._has_topic_ids):
            # A leader forgets last, so no request may forget what it names.
            del self._forgotten[key]
        self._changed[key] = topic_id

    def forget(self, key: TopicPartition) -> None:
        """The partition is not to be fetched, for now or any more."""
        self._changed.pop(key, None)
        known = self._known.pop(key, None)
        if known is not None:
            self._forgotten[key] = known

    def next(self) -> tuple[list[TopicPartition], list[tuple[TopicPartition, bytes]]]:
        """What the next request names, and what it has the leader forget. Its answer is to be noted."""
        if self.is_full:
            named = list({**self._known, **self._changed})
            forgotten: list[tuple[TopicPartition, bytes]] = []
        else:
            named = list(self._changed)
            # A topic that was deleted and created again is forgotten by its old id and named by its new one.
            forgotten = list(self._forgotten.items())
        self._known.update(self._changed)
        self._changed = {}
        self._forgotten = {}
        return named, forgotten

    def answered(self, session_id: int) -> None:
        """The request was answered without an error; 0 means that the leader keeps no session."""
        self.session_id = session_id
        if session_id == NO_SESSION:
            self.epoch = INITIAL_EPOCH
        else:
            self.epoch = 1 if self.epoch == EPOCH_MAX else self.epoch + 1

    def restart(self, *, is_known_to_leader: bool) -> None:
        """Both sides may disagree. A leader that may still have the session ends it when it gets the next request."""
        self.epoch = INITIAL_EPOCH
        if not is_known_to_leader:
            self.session_id = NO_SESSION

    def keys(self) -> Iterable[TopicPartition]:
        return {**self._known, **self._changed}
