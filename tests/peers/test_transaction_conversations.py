"""The same requests to Apache Kafka's coordinator of transactions and to ours, one by one, get the same answers.

Conversations are random, from seeds: right and wrong producers, old and new epochs, ends that come twice or too late.
Producer ids are numbers of each broker's own; they are compared by the order in which they were first told.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from barnabas.errors import ConcurrentTransactions, error_name
from bench.kafka import ApacheKafka
from tests.broker.coordinator_requests import (
    NOBODY,
    Producer,
    add_offsets,
    add_partitions,
    ask_init,
    describe_transaction,
    end,
    find_transaction,
    list_transactions,
    produce,
)
from tests.broker.group_requests import find
from tests.broker.raw_client import RawClient
from tests.broker.record_requests import create_topic
from tests.clients.broker_process import BrokerProcess
from tests.peers.kafka_peer import START_TIMEOUT_S, V4, PeerUnavailable, jars
from tests.waiting import Deadline, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.peer]

TOPIC: Final = "topic"
CONVERSATIONS: Final = 30
REQUESTS: Final = 60
SETTINGS: Final = {
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "3600000",
}


class Side:
    """One of the two brokers, and how it names what both have."""

    def __init__(self, client: RawClient) -> None:
        self.client = client
        # Its own producer ids by their number in the conversation, and the other way round.
        self.ids: list[int] = []

    def number_of(self, producer_id: int) -> int:
        if producer_id < 0:
            return producer_id
        if producer_id not in self.ids:
            self.ids.append(producer_id)
        return self.ids.index(producer_id)

    def own(self, producer: Producer) -> Producer:
        known = 0 <= producer.id < len(self.ids)
        return Producer(self.ids[producer.id] if known else producer.id, producer.epoch)

    def settle(self, transactional_id: str) -> None:
        """Waits until what is decided is complete: one broker does that sooner than the other."""
        wait_until(
            lambda: (
                not describe_transaction(self.client, transactional_id).transaction_state.startswith(
                    "Prepare"
                )
            )
        )


Request = Callable[[Side], Any]


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Side]]:
    try:
        jars(V4)
    except PeerUnavailable as why:
        pytest.skip(str(why))
    folder: Path = tmp_path_factory.mktemp("conversations")
    with (
        ApacheKafka(folder / "kafka", SETTINGS) as kafka,
        BrokerProcess(folder / "ours", SETTINGS) as ours,
        kafka.client() as kafka_client,
        ours.client() as our_client,
    ):
        for client in (kafka_client, our_client):
            create_topic(client, TOPIC, 3)
            wait_for(client)
        yield [Side(kafka_client), Side(our_client)]


def wait_for(client: RawClient) -> None:
    """Has the coordinators' topics made, and waits until they are loaded."""
    questions: tuple[Callable[[], Any], ...] = (
        lambda: find_transaction(client, "any"),
        lambda: find(client, "any"),
        lambda: list_transactions(client),
        lambda: ask_init(client, "any"),
    )
    for ask in questions:
        deadline = Deadline(START_TIMEOUT_S)
        while (answer := ask()).error_code != 0:
            deadline.check(answer)
            time.sleep(0.1)


class Conversation:
    def __init__(self, seed: int, sides: list[Side]) -> None:
        self.rng = Random(seed)
        self.name = f"conversation-{seed}"
        self.sides = sides
        for side in sides:
            side.ids = []
        # Who mixes both versions of the protocol for one id is not believed everything by us.
        self.end_versions = (5,) if seed % 3 else (1, 4)
        # Who has been a producer, by the numbers of the conversation.
        self.producers = [Producer(0, 0)]
        self.sequences: dict[tuple[Producer, int], int] = {}

    def step(self) -> None:
        rng = self.rng
        producer = self.some_producer()
        version = rng.choice((3, 4, 5))
        request: Request
        kind = rng.choice(("init", "add", "add", "produce", "end", "end", "end", "offsets", "verify"))
        if kind == "init":
            expected = producer if rng.random() < 0.6 else NOBODY
            request = self.init(expected, rng.choice((60_000, 60_000, 0, 10**9)))
        elif kind in ("add", "verify"):
            request = self.add(
                producer, rng.sample(range(4), rng.choice((1, 1, 2))), version, kind == "verify"
            )
        elif kind == "produce":
            request = self.produce(producer, rng.randrange(3), rng.choice((11, 12, 12)))
        elif kind == "offsets":
            request = self.offsets(producer, rng.choice((1, 4)))
        else:
            request = self.end(producer, rng.random() < 0.6, rng.choice(self.end_versions))
        theirs, ours = (self.ask(side, request) for side in self.sides)
        assert ours == theirs, f"{kind} by {producer} after {self.told}"
        assert self.described(self.sides[1]) == self.described(self.sides[0])

    def ask(self, side: Side, request: Request) -> Any:
        answer = request(side)
        side.settle(self.name)
        return answer

    @property
    def told(self) -> Any:
        return [self.described(side) for side in self.sides]

    def some_producer(self) -> Producer:
        """Mostly the last, sometimes one before or none at all."""
        last = self.producers[-1]
        return self.rng.choice(
            (
                *(last,) * 6,
                self.rng.choice(self.producers),
                Producer(last.id, last.epoch - 1),
                Producer(last.id, last.epoch + 1),
                Producer(10**12, last.epoch),
            )
        )

    def note(self, producer: Producer) -> None:
        if producer.id >= 0 and producer not in self.producers:
            self.producers.append(producer)

    def described(self, side: Side) -> Any:
        described = describe_transaction(side.client, self.name)
        return (
            error_name(described.error_code),
            described.transaction_state,
            side.number_of(described.producer_id),
            described.producer_epoch,
            described.transaction_timeout_ms,
            sorted((topic.topic, sorted(topic.partitions)) for topic in described.topics),
        )

    def answered(self, side: Side, answer: Any) -> Any:
        producer = Producer(side.number_of(answer.producer_id), answer.producer_epoch)
        self.note(producer)
        return error_name(answer.error_code), producer

    def init(self, expected: Producer, timeout_ms: int) -> Request:
        def ask(side: Side) -> Any:
            answer = ask_init(
                side.client, self.name, expected=side.own(expected), timeout_ms=timeout_ms, version=5
            )
            return self.answered(side, answer)

        return ask

    def add(self, producer: Producer, partitions: list[int], version: int, verifies: bool) -> Request:
        def ask(side: Side) -> Any:
            errors = add_partitions(
                side.client,
                self.name,
                side.own(producer),
                {TOPIC: partitions},
                version=max(version, 4) if verifies else version,
                verify_only=verifies,
            )
            return {partition: error_name(code) for partition, code in errors.items()}

        return ask

    def produce(self, producer: Producer, partition: int, version: int) -> Request:
        sequence = self.sequences.get((producer, partition), 0)

        def ask(side: Side) -> Any:
            code = produce(
                side.client,
                TOPIC,
                self.name,
                side.own(producer),
                sequence=sequence,
                version=version,
                partition=partition,
            )
            if code == 0:
                self.sequences[producer, partition] = sequence + 1
            return error_name(code)

        return ask

    def offsets(self, producer: Producer, version: int) -> Request:
        def ask(side: Side) -> Any:
            return error_name(
                add_offsets(side.client, self.name, side.own(producer), "group", version=version)
            )

        return ask

    def end(self, producer: Producer, commit: bool, version: int) -> Request:
        def ask(side: Side) -> Any:
            answer = end(side.client, self.name, side.own(producer), commit=commit, version=version)
            assert answer.error_code != ConcurrentTransactions.code
            return self.answered(side, answer)

        return ask


@pytest.mark.parametrize("seed", range(CONVERSATIONS))
def test_the_same_requests_get_the_same_answers(sides: list[Side], seed: int) -> None:
    conversation = Conversation(seed, sides)
    for _ in range(REQUESTS):
        conversation.step()
