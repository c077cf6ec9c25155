"""A broker of ours, started on directories that Apache Kafka left, describes groups and transactions as Kafka did.

The clock stands where Kafka was asked, so that nothing has expired since.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from barnabas.clock import ManualClock
from barnabas.protocol.codec import decode_prefix
from barnabas.protocol.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from barnabas.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from barnabas.protocol.messages.describe_transactions_request import DescribeTransactionsRequest
from barnabas.protocol.messages.list_groups_request import ListGroupsRequest
from barnabas.protocol.messages.list_transactions_request import ListTransactionsRequest
from barnabas.protocol.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.broker.group_requests import describe
from tests.broker.raw_client import RawClient
from tests.broker.running import RunningBroker
from tests.log.golden.images import ALL, Image
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

LOADING = 14


@pytest.mark.parametrize("name", ALL)
def test_groups_and_transactions_are_told_as_kafka_told_them(
    images: dict[str, Image], tmp_path: Path, name: str
) -> None:
    image = images[name]
    directory = tmp_path / "data"
    shutil.copytree(image.data, directory)
    with (
        RunningBroker(directory, clock=ManualClock(image.read_at_ms)) as broker,
        broker.client() as client,
    ):
        wait_until(lambda: client.ask("ListGroups", 0, ListGroupsRequest()).error_code != LOADING)
        wait_until(lambda: client.ask("ListTransactions", 0, ListTransactionsRequest()).error_code != LOADING)
        groups: dict[str, Any] = image.manifest["groups"]
        types = {
            group.group_id: group.group_type
            for group in client.ask("ListGroups", 5, ListGroupsRequest()).groups
        }
        assert set(types) == set(groups)
        for group_id, expected in groups.items():
            found = _consumer_group if types[group_id].lower() == "consumer" else _classic_group
            told = {**found(client, group_id), "offsets": _offsets(client, group_id)}
            assert told == {key: expected[key] for key in told}, group_id
        assert _transactions(client) == image.manifest["transactions"]


def _classic_group(client: RawClient, group_id: str) -> dict[str, Any]:
    group = describe(client, group_id)
    assert group.error_code == 0
    return {
        "state": group.group_state,
        "assignor": group.protocol_data,
        "members": [
            {
                "memberId": member.member_id,
                "instanceId": member.group_instance_id,
                "clientId": member.client_id,
                "assignment": _assignment(bytes(member.member_assignment)),
            }
            for member in group.members
        ],
    }


def _assignment(data: bytes) -> list[str]:
    if not data:
        return []
    assignment, _ = decode_prefix(ConsumerProtocolAssignment, data, 0, 2)
    return sorted(
        f"{topic.topic}-{partition}"
        for topic in assignment.assigned_partitions
        for partition in topic.partitions
    )


def _consumer_group(client: RawClient, group_id: str) -> dict[str, Any]:
    request = ConsumerGroupDescribeRequest(group_ids=[group_id])
    [group] = client.ask("ConsumerGroupDescribe", 1, request).groups
    assert group.error_code == 0
    return {
        "state": group.group_state,
        "assignor": group.assignor_name,
        "members": [
            {
                "memberId": member.member_id,
                "instanceId": member.instance_id,
                "clientId": member.client_id,
                "assignment": sorted(
                    f"{topic.topic_name}-{partition}"
                    for topic in member.assignment.topic_partitions
                    for partition in topic.partitions
                ),
            }
            for member in group.members
        ],
    }


def _offsets(client: RawClient, group_id: str) -> dict[str, list[Any]]:
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)], require_stable=True
    )
    [group] = client.ask("OffsetFetch", 9, request).groups
    assert group.error_code == 0
    return {
        f"{topic.name}-{each.partition_index}": [
            each.committed_offset,
            None if each.committed_leader_epoch < 0 else each.committed_leader_epoch,
            each.metadata,
        ]
        for topic in group.topics
        for each in topic.partitions
    }


def _transactions(client: RawClient) -> list[dict[str, Any]]:
    listed = client.ask("ListTransactions", 0, ListTransactionsRequest()).transaction_states
    ids = sorted(each.transactional_id for each in listed)
    request = DescribeTransactionsRequest(transactional_ids=ids)
    return [
        {
            "id": each.transactional_id,
            "producerId": each.producer_id,
            "state": each.transaction_state,
            "epoch": each.producer_epoch,
            "timeoutMs": each.transaction_timeout_ms,
            "startMs": each.transaction_start_time_ms,
            "partitions": [
                f"{topic.topic}-{partition}" for topic in each.topics for partition in topic.partitions
            ],
        }
        for each in client.ask("DescribeTransactions", 0, request).transaction_states
    ]
