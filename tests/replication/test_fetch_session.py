from __future__ import annotations

from barnabas.model import TopicPartition
from barnabas.replication.fetch_session import FollowerSession

KEY = TopicPartition("topic", 0)
TOPIC_ID = b"t" * 16


def test_what_a_leader_tells_while_a_partition_is_not_followed_is_told_again() -> None:
    session = FollowerSession()
    session.want(KEY, TOPIC_ID)
    session.next()
    session.answered(7)
    session.forget(KEY)
    assert not session.is_full
    session.want(KEY, TOPIC_ID)
    assert session.is_full
    assert session.next() == ([KEY], [])
