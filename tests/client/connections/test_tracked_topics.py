"""Which topics clients ask for: those that they need, and none that they once used."""

from __future__ import annotations

import asyncio

import pytest

import barnabas
from barnabas.client.connections.brokers import Brokers
from barnabas.client.connections.cluster import Cluster
from barnabas.client.producer.producer import Producer
from barnabas.client.settings import ClientSettings
from barnabas.model import TopicPartition
from barnabas.protocol.messages.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas.protocol.messages.delete_topics_request import DeleteTopicsRequest
from barnabas.protocol.messages.metadata_request import MetadataRequest
from tests.broker.record_requests import create_topic
from tests.client.running import run
from tests.clients.broker_process import BrokerProcess
from tests.waiting import wait_until

WAIT_S = 60


def made(broker: BrokerProcess, *topics: str) -> None:
    with broker.client() as client:
        for topic in topics:
            create_topic(client, topic, 1)


def delete(broker: BrokerProcess, topic: str) -> None:
    with broker.client() as client:
        request = DeleteTopicsRequest(topic_names=[topic], timeout_ms=60_000)
        assert client.ask("DeleteTopics", 5, request).responses[0].error_code == 0


def exists(broker: BrokerProcess, topic: str) -> bool:
    with broker.client() as client:
        answer = client.ask("Metadata", 9, MetadataRequest(topics=None))
        return topic in {each.name for each in answer.topics}


def refreshed(client: Producer | barnabas.Consumer) -> list[str]:
    """What a client tracks after it has asked for metadata in the background."""
    cluster = client._core.cluster if isinstance(client, Producer) else client._core._cluster
    client._call(cluster.refresh())
    return cluster.tracked


def test_topics_are_let_go_when_they_were_not_used_for_long(broker: BrokerProcess, topic: str) -> None:
    needed, idle, used = f"{topic}-needed", f"{topic}-idle", f"{topic}-used"
    made(broker, needed, idle, used)

    async def test(brokers: Brokers) -> None:
        cluster = Cluster(settings, brokers, needed=lambda: {needed}, max_idle_ms=60_000)
        for name in (needed, idle, used):
            await cluster.wait_for_topic(name, WAIT_S * 1000)
        for name in cluster.tracked:
            cluster._tracked[name] -= 60
        cluster.used(used)
        cluster.used("never heard of")
        await cluster.refresh()
        assert cluster.tracked == [needed, used]
        assert cluster.topic(idle) is None
        assert cluster.leader_of(TopicPartition(needed, 0)) is not None
        with cluster.awaiting([idle]):
            cluster._tracked[idle] -= 60
            await cluster.refresh()
            assert cluster.leader_of(TopicPartition(idle, 0)) is not None
        await cluster.refresh()
        assert cluster.tracked == [needed, used]
        await cluster.close()

    settings = ClientSettings(bootstrap_servers=broker.address)
    run(settings, test)


def test_a_deleted_topic_is_made_again_only_for_who_needs_it(broker: BrokerProcess, topic: str) -> None:
    other = f"{topic}-other"

    async def test(brokers: Brokers) -> None:
        cluster = Cluster(settings, brokers, allow_auto_topic_creation=True)
        await cluster.wait_for_topic(topic, WAIT_S * 1000)
        await asyncio.to_thread(delete, broker, topic)
        # A topic that is yet to be made is asked for beside it.
        await cluster.wait_for_topic(other, WAIT_S * 1000)
        await cluster.refresh()
        await cluster.refresh()
        assert cluster.tracked == [other]
        assert not await asyncio.to_thread(exists, broker, topic)
        await cluster.wait_for_topic(topic, WAIT_S * 1000)
        await cluster.close()

    settings = ClientSettings(bootstrap_servers=broker.address, retry_backoff_ms=10)
    run(settings, test)


def test_a_producer_lets_idle_topics_go_and_goes_on_with_their_numbers(
    broker: BrokerProcess, topic: str
) -> None:
    made(broker, topic)
    with Producer(
        bootstrap_servers=broker.address, metadata_max_idle_ms=5_000, linger_ms=WAIT_S * 1000
    ) as producer:
        cluster = producer._core.cluster
        sent = producer.send(topic, b"0")
        cluster._tracked[topic] -= 5
        assert refreshed(producer) == [topic], "a record waits to be sent"
        producer.flush(timeout_ms=WAIT_S * 1000)
        assert sent.result(0).offset == 0
        assert refreshed(producer) == [topic]
        cluster._tracked[topic] -= 5
        assert refreshed(producer) == []
        assert not producer._core.accumulator.topics
        sent = producer.send(topic, b"1")
        producer.flush(timeout_ms=WAIT_S * 1000)
        assert sent.result(0).offset == 1
        assert refreshed(producer) == [topic]


def test_a_producer_asks_anew_how_many_partitions_an_idle_topic_has(
    broker: BrokerProcess, topic: str
) -> None:
    made(broker, topic)
    with Producer(bootstrap_servers=broker.address) as producer:
        assert producer.partitions_for(topic) == 1
        known = producer._core.accumulator.topics[topic]
        producer._core.cluster._tracked[topic] -= 5 * 60
        assert refreshed(producer) == []
        with broker.client() as client:
            request = CreatePartitionsRequest(
                topics=[CreatePartitionsTopic(name=topic, count=2, assignments=None)], timeout_ms=30_000
            )
            assert client.ask("CreatePartitions", 3, request).results[0].error_code == 0
        # Who took the topic a moment before it was let go.
        assert producer._learn_partition(known, 1).partition == 1
        assert producer.send(topic, b"v", partition=1).result(WAIT_S).offset == 0


def test_a_topic_that_is_gone_does_not_come_back_by_a_producer_that_does_not_write(
    broker: BrokerProcess, topic: str
) -> None:
    with Producer(bootstrap_servers=broker.address) as producer:
        producer.send(topic, b"of the first").result(WAIT_S)
        delete(broker, topic)
        refreshed(producer)
        assert refreshed(producer) == []
        assert not exists(broker, topic)
        assert producer.send(topic, b"of the second", partition=0).result(WAIT_S).offset == 0
        assert exists(broker, topic)


def test_a_consumer_asks_for_what_it_reads(broker: BrokerProcess, topic: str) -> None:
    first, second, asked = f"{topic}-first", f"{topic}-second", f"{topic}-asked"
    made(broker, first, second, asked)
    with barnabas.Consumer(bootstrap_servers=broker.address, fetch_max_wait_ms=10) as consumer:
        consumer.assign([(first, 0)])
        assert consumer.position((first, 0)) == 0
        assert len(consumer.partitions_for(asked)) == 1
        assert consumer.end_offsets((asked, 0)) == {(asked, 0): 0}
        consumer.assign([(second, 0)])
        delete(broker, first)
        delete(broker, asked)
        assert refreshed(consumer) == [second]
        assert refreshed(consumer) == [second]
        assert not exists(broker, first)
        assert not exists(broker, asked)


@pytest.mark.slow
def test_the_leader_of_a_group_asks_for_the_topics_of_all(broker: BrokerProcess, topic: str) -> None:
    mine, others = f"{topic}-mine", f"{topic}-others"
    made(broker, mine, others)
    settings = {"bootstrap_servers": broker.address, "group_id": topic, "heartbeat_interval_ms": 100}
    with barnabas.Consumer(**settings) as leader:
        leader.subscribe([mine])
        wait_until(leader.assignment, meanwhile=lambda: leader.poll(10))
        assert refreshed(leader) == [mine]
        with barnabas.Consumer(**settings) as member:
            member.subscribe([others])
            wait_until(member.assignment, meanwhile=lambda: (leader.poll(10), member.poll(10)))
            assert sorted(refreshed(leader)) == [mine, others]
            assert refreshed(member) == [others]
            leader.unsubscribe()
            assert refreshed(leader) == []
