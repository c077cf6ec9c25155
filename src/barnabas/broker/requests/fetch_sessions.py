"""Fetch sessions (KIP-227): a consumer that polls a thousand partitions names only those that changed.

The client's full request (epoch 0) opens a session. Later requests carry the session's id and the next epoch, and name
partitions to add, to change and to forget. Their responses leave out partitions without news. Epoch -1 asks for a full
response and no session. A wrong id or epoch is an error of the whole request, and the client starts again with a full
request.

There are at most `max_sessions`, with at most `max_cached_partitions` together: a partition takes about 400 bytes. If
there is no room, a new session replaces sessions that have not been used for `eviction_ms`, or else sessions that are
as old and have no more partitions. A consumer never displaces a follower. If no session can be replaced, the client
gets none and names its partitions in every request. A session that grows beyond the room is closed, and its client
starts again.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Final

from barnabas.errors import FetchSessionIdNotFound, FetchSessionTopicIdError, InvalidFetchSessionEpoch
from barnabas.protocol.message import ZERO_UUID, Uuid
from barnabas.protocol.messages.fetch_request import FetchPartition, FetchRequest
from barnabas.protocol.messages.fetch_response import PartitionData

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
FIRST_VERSION_WITH_TOPIC_IDS: Final = 13
_FIRST_VERSION_WITH_REPLICA_STATE: Final = 15
# A client adds partitions request by request, whether they exist or not: this ends a session that never stops growing.
MAX_PARTITIONS: Final = 100_000
# Of all sessions together: about 80 MB.
MAX_CACHED_PARTITIONS: Final = 200_000

PartitionKey = tuple[str | Uuid, int]


def next_epoch(epoch: int) -> int:
    """The epochs of a session wrap around to 1, since 0 means a new session."""
    return 1 if epoch == 2**31 - 1 else epoch + 1


class FetchTarget:
    """A partition that a client fetches, with the values in its last response."""

    __slots__ = ("asked", "key", "told_high_watermark", "told_log_start_offset", "topic", "topic_id")

    def __init__(self, topic: str, topic_id: Uuid, asked: FetchPartition) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.asked = asked
        self.key: PartitionKey = (topic_id if topic_id != ZERO_UUID else topic, asked.partition)
        self.told_high_watermark = -1
        self.told_log_start_offset = -1

    def has_news(self, answer: PartitionData) -> bool:
        return (
            answer.error_code != 0
            or bool(answer.records)
            or answer.high_watermark != self.told_high_watermark
            or answer.log_start_offset != self.told_log_start_offset
            or answer.preferred_read_replica >= 0
            or answer.diverging_epoch.epoch >= 0
        )

    def note(self, answer: PartitionData) -> None:
        # After an error the client needs the high watermark again.
        self.told_high_watermark = -1 if answer.error_code else answer.high_watermark
        self.told_log_start_offset = answer.log_start_offset


class FetchSession:
    __slots__ = ("created_ms", "epoch", "id", "is_follower", "last_used_ms", "targets", "uses_topic_ids")

    def __init__(
        self,
        session_id: int,
        targets: Iterable[FetchTarget],
        *,
        is_follower: bool,
        uses_topic_ids: bool,
        now_ms: int,
    ) -> None:
        self.id = session_id
        self.targets = {target.key: target for target in targets}
        self.is_follower = is_follower
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.epoch = next_epoch(INITIAL_EPOCH)


class FetchContext:
    """One fetch request: its partitions, and the answers that the client needs."""

    __slots__ = ("_opens_session", "_session", "_sessions", "is_follower", "targets", "uses_topic_ids")

    def __init__(
        self,
        sessions: FetchSessions,
        targets: list[FetchTarget],
        *,
        session: FetchSession | None = None,
        opens_session: bool = False,
        is_follower: bool = False,
        uses_topic_ids: bool = False,
    ) -> None:
        self.targets = targets
        self.is_follower = is_follower
        self.uses_topic_ids = uses_topic_ids
        self._sessions = sessions
        self._session = session
        self._opens_session = opens_session

    @property
    def is_incremental(self) -> bool:
        return self._session is not None

    @property
    def known_session_id(self) -> int:
        """The request's session, if it has one."""
        return NO_SESSION if self._session is None else self._session.id

    def session_id(self, answered: list[tuple[FetchTarget, PartitionData]], now_ms: int) -> int:
        """Keeps only the answers that the client needs in the list; returns the session's id for the response."""
        session = self._session
        if session is not None:
            news = []
            for target, answer in answered:
                if target.has_news(answer):
                    news.append((target, answer))
                    if answer.records and target.key in session.targets:
                        # Partitions with records move to the end, so that no partition starves behind a busy one.
                        del session.targets[target.key]
                        session.targets[target.key] = target
                target.note(answer)
            answered[:] = news
            return session.id
        if not self._opens_session or not answered:
            return NO_SESSION
        for target, answer in answered:
            target.note(answer)
        return self._sessions.open(
            [target for target, _ in answered],
            is_follower=self.is_follower,
            uses_topic_ids=self.uses_topic_ids,
            now_ms=now_ms,
        )


class FetchSessions:
    def __init__(
        self,
        *,
        max_sessions: int = 1_000,
        eviction_ms: int = 120_000,
        max_partitions: int = MAX_PARTITIONS,
        max_cached_partitions: int = MAX_CACHED_PARTITIONS,
        rng: random.Random,
    ) -> None:
        self._max_sessions = max_sessions
        self._eviction_ms = eviction_ms
        self._max_partitions = max_partitions
        self._max_cached_partitions = max_cached_partitions
        self._rng = rng
        # In the order of their last use, the oldest first.
        self._sessions: dict[int, FetchSession] = {}
        self.cached_partitions = 0
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def context(self, request: FetchRequest, version: int, now_ms: int) -> FetchContext:
        """The context of a request. Raises the error of the whole request if it does not fit its session."""
        uses_topic_ids = version >= FIRST_VERSION_WITH_TOPIC_IDS
        is_follower = replica_id(request, version) >= 0
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._close(request.session_id)
            return FetchContext(
                self,
                _targets(request),
                opens_session=request.session_epoch == INITIAL_EPOCH and version >= 7,
                is_follower=is_follower,
                uses_topic_ids=uses_topic_ids,
            )
        session = self._sessions.get(request.session_id)
        if session is None:
            raise FetchSessionIdNotFound(f"there is no fetch session {request.session_id}")
        if session.epoch != request.session_epoch:
            raise InvalidFetchSessionEpoch(
                f"fetch session {session.id} is at epoch {session.epoch}, not {request.session_epoch}"
            )
        if session.uses_topic_ids != uses_topic_ids:
            raise FetchSessionTopicIdError(
                f"fetch session {session.id} was opened {'with' if session.uses_topic_ids else 'without'} topic ids"
            )
        before = len(session.targets)
        self._update(session, request)
        self.cached_partitions += len(session.targets) - before
        if (
            len(session.targets) > self._max_partitions
            or self.cached_partitions > self._max_cached_partitions
        ):
            self._close(session.id)
            raise FetchSessionIdNotFound(
                f"fetch session {session.id} has grown to {len(session.targets)} partitions, and is closed"
            )
        if not session.targets:
            self._close(session.id)
            return FetchContext(self, [], is_follower=is_follower, uses_topic_ids=uses_topic_ids)
        session.epoch = next_epoch(session.epoch)
        session.last_used_ms = now_ms
        self._sessions[session.id] = self._sessions.pop(session.id)
        return FetchContext(
            self,
            list(session.targets.values()),
            session=session,
            is_follower=is_follower,
            uses_topic_ids=uses_topic_ids,
        )

    def open(
        self, targets: list[FetchTarget], *, is_follower: bool, uses_topic_ids: bool, now_ms: int
    ) -> int:
        """The id of a new session with these targets, or NO_SESSION if there is no room for one."""
        if len(targets) > self._max_cached_partitions:
            return NO_SESSION
        while (
            len(self._sessions) >= self._max_sessions
            or self.cached_partitions + len(targets) > self._max_cached_partitions
        ):
            if not self._evict(is_follower, len(targets), now_ms):
                return NO_SESSION
        session_id = self._rng.randrange(1, 2**31)
        while session_id in self._sessions:
            session_id = self._rng.randrange(1, 2**31)
        self._sessions[session_id] = FetchSession(
            session_id, targets, is_follower=is_follower, uses_topic_ids=uses_topic_ids, now_ms=now_ms
        )
        self.cached_partitions += len(targets)
        return session_id

    def _close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.cached_partitions -= len(session.targets)

    @staticmethod
    def _update(session: FetchSession, request: FetchRequest) -> None:
        for target in _targets(request):
            known = session.targets.get(target.key)
            if known is None:
                session.targets[target.key] = target
            else:
                known.asked = target.asked
        for forgotten in request.forgotten_topics_data:
            name = forgotten.topic_id if forgotten.topic_id != ZERO_UUID else forgotten.topic
            for partition in forgotten.partitions:
                session.targets.pop((name, partition), None)

    def _evict(self, for_follower: bool, size: int, now_ms: int) -> bool:
        if not self._sessions:
            return False
        victim = next(iter(self._sessions.values()))
        if now_ms - victim.last_used_ms <= self._eviction_ms:
            candidates = [
                session
                for session in self._sessions.values()
                if now_ms - session.created_ms > self._eviction_ms
                or (for_follower and not session.is_follower)
            ]
            if not candidates:
                return False
            victim = min(
                candidates, key=lambda session: (session.is_follower, len(session.targets), session.id)
            )
            if (for_follower, size) < (victim.is_follower, len(victim.targets)):
                return False
        self._close(victim.id)
        self.evictions += 1
        return True


def replica_id(request: FetchRequest, version: int) -> int:
    """The broker that fetches as a follower; -1 for consumers, and smaller for tools."""
    return (
        request.replica_id
        if version < _FIRST_VERSION_WITH_REPLICA_STATE
        else request.replica_state.replica_id
    )


def _targets(request: FetchRequest) -> list[FetchTarget]:
    """A partition that is named twice is fetched once, as it was named last."""
    targets: dict[PartitionKey, FetchTarget] = {}
    for topic in request.topics:
        for asked in topic.partitions:
            target = FetchTarget(topic.topic, topic.topic_id, asked)
            targets[target.key] = target
    return list(targets.values())
