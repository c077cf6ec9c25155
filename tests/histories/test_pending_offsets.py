"""A group's offset that is pending in a transaction while the consumer's assignment changes.

librdkafka takes it for no offset, on Apache Kafka as on Barnabas; a member of the histories then joins again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.kafka import ApacheKafka
from tests.clients.broker_process import BrokerProcess
from tests.histories.client import Client
from tests.histories.confluent_clients import Member
from tests.histories.history import Recorder
from tests.histories.test_workload import SETTINGS, plan
from tests.peers.kafka_peer import PeerUnavailable
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

RECORDS: Final = 10
COMMITTED: Final = 5
PENDING: Final = 8
FIRST: Final = 0
SECOND: Final = 1
CALL_S: Final = 30.0
POLL_S: Final = 0.05


@pytest.fixture(
    scope="module",
    params=[BrokerProcess, pytest.param(ApacheKafka, marks=pytest.mark.peer)],
    ids=["barnabas", "kafka"],
)
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    try:
        broker = request.param(tmp_path_factory.mktemp("broker") / "data", SETTINGS)
    except PeerUnavailable as why:
        pytest.skip(str(why))
    with broker:
        yield broker.address


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    """Each test has a group and a topic of its own, both of this name."""
    return str(request.node.originalname)


@pytest.fixture
def pending(address: str, group: str) -> Producer:
    """A producer in whose transaction an offset of the first partition is; the committed one is lower."""
    admin = AdminClient({"bootstrap.servers": address})
    [created] = admin.create_topics([NewTopic(group, 2, 1)]).values()
    created.result(CALL_S)
    producer = Producer({"bootstrap.servers": address, "transactional.id": group, "log_level": 0})
    producer.init_transactions(CALL_S)
    consumer = Consumer({"bootstrap.servers": address, "group.id": group})
    metadata = consumer.consumer_group_metadata()
    consumer.close()
    for committed in (True, False):
        producer.begin_transaction()
        for _ in range(RECORDS):
            producer.produce(group, b"value", partition=FIRST)
        offsets = {FIRST: COMMITTED, SECOND: 0} if committed else {FIRST: PENDING}
        positions = [TopicPartition(group, number, offset) for number, offset in offsets.items()]
        producer.send_offsets_to_transaction(positions, metadata, CALL_S)
        if committed:
            producer.commit_transaction(CALL_S)
    return producer


class Answers(logging.Handler):
    """Hears from librdkafka's debug log that an offset is pending."""

    def __init__(self) -> None:
        super().__init__()
        self.is_pending = False
        logger = logging.Logger("librdkafka")
        logger.addHandler(self)
        self.settings = {"debug": "topic", "log_level": 7, "logger": logger}

    def emit(self, record: logging.LogRecord) -> None:
        self.is_pending |= "UNSTABLE_OFFSET_COMMIT" in record.getMessage()


def let_the_assignment_change(consumer: Consumer, topic: str, answers: Answers) -> None:
    """librdkafka has been told that the first partition's offset is pending when the second one is assigned as well."""
    consumer.incremental_assign([TopicPartition(topic, FIRST)])
    wait_until(lambda: consumer.poll(POLL_S) is None and answers.is_pending, "the offset is pending")
    consumer.incremental_assign([TopicPartition(topic, SECOND)])


def test_librdkafka_begins_at_the_first_record(address: str, group: str, pending: Producer) -> None:
    answers = Answers()
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **answers.settings,
        }
    )
    let_the_assignment_change(consumer, group, answers)
    message = wait_until(lambda: consumer.poll(POLL_S), "a record")
    assert message is not None
    assert (message.error(), message.partition(), message.offset()) == (None, FIRST, 0)
    consumer.close()
    pending.abort_transaction(CALL_S)


def test_a_member_of_the_histories_begins_where_the_group_is(
    address: str, group: str, pending: Producer, tmp_path: Path
) -> None:
    with Recorder(tmp_path / "events") as recorder:
        answers = Answers()
        copier = plan("copy", group, topic=group, group=group, settings=answers.settings)
        client = Client(replace(copier, address=address), recorder, threading.Event())
        member = Member(client)
        member.consumer.unsubscribe()
        let_the_assignment_change(member.consumer, group, answers)
        wait_until(lambda: not member.poll() and client.consumers == 2, "another consumer joins")
        pending.commit_transaction(CALL_S)
        [(position, _), *_] = wait_until(member.poll, "records")
        assert (position.partition, position.offset) == (f"{group}/{FIRST}", PENDING)
        member.consumer.close()
