"""What a follower's session with a leader may not lose."""

from __future__ import annotations

from barnabas.model import TopicPartition
from barnabas.protocol.messages.fetch_request import FetchRequest
from barnabas.protocol.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from barnabas.replication.fetcher import Fetcher, FetcherSettings

KEY = TopicPartition("topic", 0)
TOPIC_ID = b"t" * 16


def follow(fetcher: Fetcher, leader_epoch: int) -> None:
    fetcher.follow(
        KEY,
        topic_id=TOPIC_ID,
        leader_epoch=leader_epoch,
        log_end_offset=4,
        high_watermark=3,
        last_epoch=0,
        log_start_offset=0,
    )


def ask(fetcher: Fetcher) -> tuple[int, bool]:
    """The session epoch of the next request, and whether it names the partition."""
    request = fetcher.next_request(0)
    assert isinstance(request, FetchRequest)
    return request.session_epoch, bool(request.topics)


def test_what_a_leader_tells_while_a_partition_is_not_followed_is_told_again() -> None:
    """As when the role changes between a request and its response: the high watermark would not come again."""
    fetcher = Fetcher(FetcherSettings(replica_id=1, broker_epoch=lambda: 4))
    follow(fetcher, 0)
    assert ask(fetcher) == (0, True)
    fetcher.fetched(FetchResponse(session_id=7), 0)
    assert ask(fetcher) == (1, False)
    fetcher.unfollow([KEY])
    told = FetchableTopicResponse(
        topic_id=TOPIC_ID, partitions=[PartitionData(partition_index=0, high_watermark=4)]
    )
    assert fetcher.fetched(FetchResponse(session_id=7, responses=[told]), 0) == []
    follow(fetcher, 1)
    assert ask(fetcher) == (0, True)


def test_a_role_that_changes_under_a_request_without_news_keeps_the_session() -> None:
    fetcher = Fetcher(FetcherSettings(replica_id=1, broker_epoch=lambda: 4))
    follow(fetcher, 0)
    assert ask(fetcher) == (0, True)
    fetcher.unfollow([KEY])
    follow(fetcher, 1)
    fetcher.fetched(FetchResponse(session_id=7), 0)
    assert ask(fetcher) == (1, True)
