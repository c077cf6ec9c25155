"""Leaders move under load, in a cluster of two nodes of Apache Kafka: nothing lost, nothing twice, all in order."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

import barnabas
from barnabas.client.admin.results import NewTopic
from barnabas.errors import UnknownTopicOrPartition
from barnabas.model import TopicPartition
from tests.client.consumer_servers import WAIT_S, KafkaProcess, consumer_settings, numbered, values
from tests.peers.kafka_peer import V4, PeerUnavailable
from tests.waiting import Deadline, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.peer]

MOVES = 4
RECORDS_A_MOVE = 500


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[KafkaProcess]]:
    folder = tmp_path_factory.mktemp("cluster")
    with ExitStack() as stack:
        try:
            first = stack.enter_context(KafkaProcess(folder / "first", V4))
            second = stack.enter_context(KafkaProcess(folder / "second", V4, joins=first))
        except PeerUnavailable as reason:
            pytest.skip(f"Apache Kafka {V4} is needed: {reason}")
        yield [first, second]


def leader_of(admin: barnabas.Admin, tp: TopicPartition) -> int | None:
    """As the node that is asked sees it, which may be behind."""
    try:
        return admin.describe_topics([tp.topic])[tp.topic].partitions[tp.partition].leader
    except UnknownTopicOrPartition:
        return None


def move_leader(admin: barnabas.Admin, tp: TopicPartition, order: list[int]) -> None:
    """The first of these nodes becomes the preferred leader, and then the leader."""
    admin.alter_reassignments({tp: order})
    wait_until(lambda: not admin.list_reassignments(), "the reassignment ends")
    admin.elect_leaders([tp])
    wait_until(lambda: leader_of(admin, tp) == order[0], f"node {order[0]} leads")


@pytest.mark.parametrize("group_id", [None, "g"])
def test_leaders_move_under_load(cluster: list[KafkaProcess], group_id: str | None) -> None:
    tp = TopicPartition(f"topic-of-{group_id}", 0)
    addresses = ",".join(node.address for node in cluster)
    count = (MOVES + 1) * RECORDS_A_MOVE
    may_send = threading.Semaphore(RECORDS_A_MOVE)
    failures: list[BaseException] = []

    def produce() -> None:
        try:
            with barnabas.Producer(bootstrap_servers=addresses, linger_ms=1, retry_backoff_ms=10) as producer:
                for value in numbered(count):
                    assert may_send.acquire(timeout=WAIT_S)
                    producer.send(tp.topic, value, partition=tp.partition)
                producer.flush(timeout_ms=WAIT_S * 1000)
        except BaseException as failure:
            failures.append(failure)

    with barnabas.Admin(bootstrap_servers=addresses) as admin:
        wait_until(lambda: len(admin.describe_cluster().nodes) == 2, "two nodes")
        admin.create_topics([NewTopic(name=tp.topic, assignment={0: [1, 2]})])
        wait_until(lambda: leader_of(admin, tp) == 1, "node 1 leads")
        settings = consumer_settings({"group_id": group_id})
        writer = threading.Thread(target=produce)
        with barnabas.Consumer(bootstrap_servers=addresses, **settings) as consumer:
            if group_id is None:
                consumer.assign([tp])
            else:
                consumer.subscribe(tp.topic)
            writer.start()
            records: list[barnabas.ConsumerRecord] = []
            for move in range(MOVES + 1):
                # Some records of each round are sent before the move, and some while it goes on.
                deadline = Deadline()
                while len(records) < (move + 1) * RECORDS_A_MOVE:
                    deadline.check(f"{len(records)} records before move {move}")
                    records += consumer.poll(100)
                if move < MOVES:
                    may_send.release(RECORDS_A_MOVE)
                    move_leader(admin, tp, [2, 1] if move % 2 == 0 else [1, 2])
            writer.join(WAIT_S)
    assert not failures, failures
    assert values(records) == numbered(count)
    assert [record.offset for record in records] == list(range(count))
