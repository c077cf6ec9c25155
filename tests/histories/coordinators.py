"""What a workload asks the coordinators itself: before its clients begin, and when they have ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from barnabas.protocol.messages.init_producer_id_request import InitProducerIdRequest
from barnabas.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from barnabas.protocol.messages.offset_fetch_response import OffsetFetchResponseGroup
from tests.broker.group_requests import find
from tests.broker.raw_client import Asking
from tests.histories.history import partition_name
from tests.waiting import Deadline

T = TypeVar("T")

WAIT_S: Final = 120
POLL_S: Final = 0.05
GROUP_KEY: Final = 0
TRANSACTION_KEY: Final = 1
# A topic that the coordinator does not know yet, loading, not available, not the coordinator, unstable offsets, still
# ending the last transaction: come again.
COME_AGAIN: Final = frozenset({3, 14, 15, 16, 51, 88})


def begin_group(client: Asking, group: str, topic: str, partitions: int) -> None:
    """The group has read nothing, and says so: no consumer may find that it has no offset."""
    topics = [
        OffsetCommitRequestTopic(
            name=topic,
            partitions=[
                OffsetCommitRequestPartition(partition_index=number, committed_offset=0)
                for number in range(partitions)
            ],
        )
    ]
    request = OffsetCommitRequest(group_id=group, topics=topics)

    def commit() -> tuple[None, int]:
        [answer] = client.ask("OffsetCommit", 8, request).topics
        return None, max(each.error_code for each in answer.partitions)

    _insist(client, group, GROUP_KEY, commit)


def committed_offsets(client: Asking, group: str) -> dict[str, int]:
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, topics=None)], require_stable=True
    )

    def fetch() -> tuple[OffsetFetchResponseGroup, int]:
        [answer] = client.ask("OffsetFetch", 8, request).groups
        codes = [each.error_code for topic in answer.topics for each in topic.partitions]
        return answer, max([answer.error_code, *codes])

    return {
        partition_name(topic.name, each.partition_index): each.committed_offset
        for topic in _insist(client, group, GROUP_KEY, fetch).topics
        for each in topic.partitions
        if each.committed_offset >= 0
    }


def end_transactions(client: Asking, transactional_ids: Iterable[str]) -> None:
    """Has the broker abort what clients have left open, as their next incarnations would."""
    for transactional_id in transactional_ids:
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)

        def init(request: InitProducerIdRequest = request) -> tuple[None, int]:
            return None, client.ask("InitProducerId", 4, request).error_code

        _insist(client, transactional_id, TRANSACTION_KEY, init)


def _insist(client: Asking, key: str, key_type: int, ask: Callable[[], tuple[T, int]]) -> T:
    """What the coordinator answers when it has no error to tell."""
    deadline = Deadline(WAIT_S)
    while True:
        error_code = find(client, key, version=4, key_type=key_type).error_code
        if error_code == 0:
            answer, error_code = ask()
            if error_code == 0:
                return answer
        assert error_code in COME_AGAIN, f"{key}: error {error_code}"
        deadline.check(f"{key}: error {error_code}")
        time.sleep(POLL_S)
