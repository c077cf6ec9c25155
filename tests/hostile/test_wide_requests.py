"""Requests that name far too many things: refused before they cost anything, whatever the API and the array."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.broker.dispatch import ELEMENTS_MIN
from barnabas.protocol.apis import api_for_name
from barnabas.protocol.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from barnabas.protocol.messages.describe_groups_request import DescribeGroupsRequest
from barnabas.protocol.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
from barnabas.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from barnabas.protocol.requests import encode_request
from tests.broker.record_requests import create_topic
from tests.clients.broker_process import BrokerProcess
from tests.hostile.canary import Canary
from tests.hostile.mutations import TARGET
from tests.hostile.test_connections import connect, is_closed, lines_about
from tests.hostile.wide_requests import TOPIC_RESOURCE, WideRequest, wide_requests

MANY = 10_000


def frame_of(wide: WideRequest) -> bytes:
    request = encode_request(api_for_name(wide.api_name), wide.version, 1, "wide", wide.body)
    return struct.pack(">i", len(request)) + bytes(request)


def samples(*names: str) -> Iterator[WideRequest]:
    for wide in wide_requests(ELEMENTS_MIN + 100, distinct=False):
        if not names or wide.api_name in names:
            yield wide


def check_refused(broker: BrokerProcess, wide: WideRequest) -> None:
    before_bytes = broker.rss_bytes()
    with connect(broker) as connected:
        connected.sendall(frame_of(wide))
        assert is_closed(connected)
        [line] = lines_about(broker, connected)
    assert f"{wide.api_name}Request" in line, (wide.array, line)
    assert "elements" in line, (wide.array, line)
    assert broker.rss_bytes() - before_bytes < 64 << 20, wide.array


def test_too_many_elements_end_the_connection(broker: BrokerProcess) -> None:
    with Canary(broker):
        for wide in samples("Metadata", "OffsetFetch"):
            check_refused(broker, wide)


@pytest.mark.slow
def test_too_many_elements_in_any_array_of_any_api(broker: BrokerProcess) -> None:
    with Canary(broker):
        for wide in samples():
            check_refused(broker, wide)


@pytest.mark.slow
@pytest.mark.parametrize("distinct", [False, True])
def test_as_many_elements_as_are_allowed(broker: BrokerProcess, distinct: bool) -> None:
    """Each is answered, or refused with a line that says why; the others wait for it, but not for long."""
    with Canary(broker):
        for wide in wide_requests(ELEMENTS_MIN // 8, distinct=distinct):
            if wide.api_name == "AlterClientQuotas":
                continue
            with connect(broker) as connected:
                connected.sendall(frame_of(wide))
                if connected.recv(4) == b"":
                    assert len(lines_about(broker, connected)) == 1, (wide.api_name, wide.array)


@pytest.mark.slow
def test_a_broker_with_many_partitions_is_asked_for_all_of_them(tmp_path: Path) -> None:
    """Nobody has to ask in pieces."""
    indexes = range(1_000)
    with BrokerProcess(tmp_path / "data") as broker, broker.client() as client:
        for number in range(2):
            create_topic(client, f"many-{number}", len(indexes))
        names = ["many-0", "many-1"]
        missing = [f"missing-{number}" for number in range(MANY)]
        topics = [MetadataRequestTopic(name=name) for name in (*names, *missing)]
        metadata = client.ask("Metadata", 12, MetadataRequest(topics=topics, allow_auto_topic_creation=False))
        assert len(metadata.topics) == len(topics)
        assert sum(len(topic.partitions) for topic in metadata.topics) == 2 * len(indexes)

        asked = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(MANY)]
        offsets = client.ask(
            "ListOffsets",
            7,
            ListOffsetsRequest(
                replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=asked) for name in names[:1]]
            ),
        )
        codes = [partition.error_code for partition in offsets.topics[0].partitions]
        assert (len(codes), codes.count(0)) == (MANY, len(indexes))

        wanted = [FetchPartition(partition=index, partition_max_bytes=1_000) for index in range(MANY)]
        fetched = client.ask(
            "Fetch",
            12,
            FetchRequest(
                max_wait_ms=0, session_epoch=-1, topics=[FetchTopic(topic="many-0", partitions=wanted)]
            ),
        )
        codes = [partition.error_code for partition in fetched.responses[0].partitions]
        assert (len(codes), codes.count(0)) == (MANY, len(indexes))


def test_what_is_asked_for_many_times_is_told_once(broker: BrokerProcess) -> None:
    """A few bytes of a request must not become a few megabytes of an answer, again and again."""
    times = 2_000
    with broker.client() as client:
        resource = DescribeConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=TARGET, configuration_keys=None
        )
        described = client.ask("DescribeConfigs", 4, DescribeConfigsRequest(resources=[resource] * times))
        assert [(each.resource_name, len(each.configs) > 20) for each in described.results] == [
            (TARGET, True)
        ]
        groups = client.ask("DescribeGroups", 5, DescribeGroupsRequest(groups=["group"] * times))
        assert [group.group_id for group in groups.groups] == ["group"]
        topics = [TopicRequest(name=TARGET, partition_indexes=[0, 0])] * times
        producers = client.ask("DescribeProducers", 0, DescribeProducersRequest(topics=topics))
        assert [(each.name, len(each.partitions)) for each in producers.topics] == [(TARGET, 1)]
        asked = [OffsetFetchRequestGroup(group_id="group", topics=None)] * times
        assert len(client.ask("OffsetFetch", 8, OffsetFetchRequest(groups=asked)).groups) == 1
