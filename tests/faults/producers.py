"""Producers that outlive a broker's crashes and know, of each record, what they have been told about it.

Values are numbers, counted up by each producer. A plain producer goes on with the next number when its connection is
lost: what was under way then may be in the log or not. An idempotent one sends the same batches again, with the same
sequence numbers, until they are acknowledged. After a crash a broker knows no more of a producer than its last batch,
as in Apache Kafka; so one with several batches under way may be told that the first of them is out of order. It then
gives them up and goes on under a new producer id.
"""

from __future__ import annotations

import contextlib
import itertools
import struct
import threading
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Collection
from typing import Any, Final, Protocol

from confluent_kafka import KafkaError, Message, Producer

from barnabas.errors import OutOfOrderSequenceNumber
from barnabas.protocol.apis import api_for_name
from barnabas.protocol.messages.init_producer_id_request import InitProducerIdRequest
from barnabas.protocol.requests import decode_response
from tests.broker.raw_client import RawClient
from tests.broker.record_requests import batch, create_topic, produce_request
from tests.clients.broker_process import BrokerProcess
from tests.waiting import Deadline

PRODUCE_VERSION: Final = 9
RECORDS_A_BATCH: Final = 3
PADDING: Final = b"." * 2_000
RECONNECT_S: Final = 0.02
# Crashes are what is tested here, not speed: this much less load leaves less to read afterwards.
PAUSE_S: Final = 0.002
FLUSH_S: Final = 120
# A number is found again in the value by this.
VALUE: Final = struct.Struct(">16sq")


def value_of(name: str, number: int) -> bytes:
    return VALUE.pack(name.encode(), number) + PADDING


def parse_value(value: bytes) -> tuple[str, int]:
    name, number = VALUE.unpack_from(value)
    return name.rstrip(b"\0").decode(), number


class Addressed(Protocol):
    """Where a producer connects to."""

    @property
    def port(self) -> int: ...

    @property
    def address(self) -> str: ...


class LoadProducer:
    """One thread of load on one partition. `acknowledged` has the offset of each number that was confirmed."""

    def __init__(self, broker: Addressed, name: str, topic: str, partition: int) -> None:
        self.name = name
        self.partition = partition
        self.acknowledged: dict[int, int] = {}
        self._broker = broker
        self._topic = topic
        self._is_over = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._guarded_run, name=name)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()

    def check_alive(self) -> None:
        if self._failure is not None:
            raise AssertionError(f"producer {self.name} failed") from self._failure

    def _guarded_run(self) -> None:
        try:
            self._run()
        except BaseException as error:
            self._failure = error

    @abstractmethod
    def _run(self) -> None: ...

    @abstractmethod
    def check(self, numbers: list[int]) -> None:
        """Raises unless these numbers, found in the log in this order, are right after a crash."""


class RawProducer(LoadProducer):
    def __init__(
        self,
        broker: Addressed,
        name: str,
        topic: str,
        partition: int,
        *,
        acks: int,
        idempotent: bool = False,
        in_flight_max: int = 5,
        passing_errors: Collection[int] = (),
    ) -> None:
        """`passing_errors` are codes of errors after which the same leader is asked again."""
        super().__init__(broker, name, topic, partition)
        self._passing_errors = passing_errors
        self._acks = acks
        self._idempotent = idempotent
        self._in_flight_max = in_flight_max
        self._next = 0
        # First numbers of the batches that are not answered yet.
        self._in_flight: deque[int] = deque()
        self._producer_id = -1
        self._first_of_id = 0

    def _run(self) -> None:
        while not self._is_over.is_set():
            try:
                with RawClient(self._broker.port, client_id=self.name) as client:
                    self._produce(client)
            except OSError:
                self._is_over.wait(RECONNECT_S)
            except OutOfOrderSequenceNumber:
                assert self._in_flight_max > 1, "its last batch is what a broker always knows of a producer"
                self._in_flight.clear()
                self._producer_id = -1
            if not self._idempotent:
                self._in_flight.clear()

    def _produce(self, client: RawClient) -> None:
        if self._idempotent and self._producer_id < 0:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            answer = client.ask("InitProducerId", 4, request)
            if answer.error_code in self._passing_errors:
                raise ConnectionError(f"error {answer.error_code}")
            assert answer.error_code == 0, answer
            self._producer_id = answer.producer_id
            self._first_of_id = self._next
        for first in self._in_flight:
            self._send(client, first)
        while not self._is_over.is_set():
            while len(self._in_flight) < self._in_flight_max:
                self._in_flight.append(self._next)
                self._next += RECORDS_A_BATCH
                self._send(client, self._in_flight[-1])
            self._receive(client)
            self._is_over.wait(PAUSE_S)
        while self._in_flight:
            self._receive(client)

    def _send(self, client: RawClient, first: int) -> None:
        # Records of long ago would be retained no longer, and their producer would be forgotten.
        now_ms = int(time.time() * 1_000)
        producer: dict[str, Any] = {}
        if self._idempotent:
            sequence = first - self._first_of_id
            producer = {"producer_id": self._producer_id, "producer_epoch": 0, "base_sequence": sequence}
        values = [value_of(self.name, first + index) for index in range(RECORDS_A_BATCH)]
        records = batch(*values, timestamp=now_ms, **producer)
        request = produce_request(self._topic, records, partition=self.partition, acks=self._acks)
        client.send("Produce", PRODUCE_VERSION, request)

    def _receive(self, client: RawClient) -> None:
        response = decode_response(api_for_name("Produce"), PRODUCE_VERSION, client.receive_frame())
        answer: Any = response.body.responses[0].partition_responses[0]
        if answer.error_code == OutOfOrderSequenceNumber.code:
            raise OutOfOrderSequenceNumber(answer.error_message)
        if answer.error_code in self._passing_errors:
            raise ConnectionError(f"error {answer.error_code}")
        assert answer.error_code == 0, answer
        first = self._in_flight.popleft()
        for index in range(RECORDS_A_BATCH):
            self.acknowledged[first + index] = answer.base_offset + index

    def check(self, numbers: list[int]) -> None:
        if self._idempotent and self._in_flight_max == 1:
            expected = list(range(len(numbers)))
            assert numbers == expected, f"{self.name}: a gap, a duplicate or a change of order"
        else:
            rising = all(before < after for before, after in itertools.pairwise(numbers))
            assert rising, f"{self.name}: a duplicate or a change of order"
        assert not numbers or numbers[-1] < self._next, f"{self.name}: {numbers[-1]} was never sent"


class ConfluentProducer(LoadProducer):
    """librdkafka's idempotent producer, which retries by itself."""

    def __init__(self, broker: Addressed, name: str, topic: str, partition: int) -> None:
        super().__init__(broker, name, topic, partition)
        self._sent = 0
        self._errors: list[KafkaError] = []

    def _run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._broker.address,
                "enable.idempotence": True,
                "max.in.flight.requests.per.connection": 1,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                "batch.num.messages": 10,
                "linger.ms": 1,
                "log_level": 0,
            }
        )
        while not self._is_over.wait(PAUSE_S):
            with contextlib.suppress(BufferError):
                producer.produce(
                    self._topic,
                    value_of(self.name, self._sent),
                    key=b"%d" % self._sent,
                    partition=self.partition,
                    on_delivery=self._delivered,
                )
                self._sent += 1
            producer.poll(0)
        assert producer.flush(FLUSH_S) == 0, "records that were never delivered"
        assert not self._errors, self._errors[:3]
        assert len(self.acknowledged) == self._sent

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._errors.append(error)
        else:
            self.acknowledged[int(message.key())] = message.offset()

    def check(self, numbers: list[int]) -> None:
        assert numbers == list(range(len(numbers))), f"{self.name}: a gap, a duplicate or a change of order"
        assert len(numbers) <= self._sent


class TopicMaker:
    """Creates one topic after the other; those that were confirmed have to be there after any crash."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.confirmed: list[str] = []
        self._broker = broker
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="topics")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._is_over.is_set():
            try:
                with RawClient(self._broker.port, client_id="topics") as client:
                    while not self._is_over.wait(0.05):
                        name = f"made-{number}"
                        number += 1
                        create_topic(client, name)
                        self.confirmed.append(name)
            except OSError:
                self._is_over.wait(RECONNECT_S)


def wait_for_load(producers: list[LoadProducer], count: int, timeout_s: float) -> None:
    """Until each producer has had so many more records confirmed."""
    deadline = Deadline(timeout_s)
    wanted = {producer: len(producer.acknowledged) + count for producer in producers}
    for producer, total in wanted.items():
        while len(producer.acknowledged) < total:
            producer.check_alive()
            deadline.check(f"{producer.name}: {len(producer.acknowledged)} of {total}")
            time.sleep(0.005)
