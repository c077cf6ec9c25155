"""Transactions compared with Apache Kafka, alternating, in one run.

A transaction is a batch of 100 records to one partition and its commit. Transactions follow one another, and each
request waits for the response to the one before. Raw requests (bench/load.py) come first: as clients of transaction
version 2 send them (Produce adds the partition itself, every end has a new epoch) and as older clients do
(AddPartitionsToTxn first); from one producer, and from many at once. confluent-kafka follows, for the view of a client.

While the broker still ends the last transaction it answers CONCURRENT_TRANSACTIONS, and the producer retries soon.
BENCH_SECONDS is the time of one load; the warm-up time follows from it.
"""

from __future__ import annotations

import os
import selectors
import socket
import struct
import tempfile
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import Producer

from barnabas.model import Offset, TimestampMs
from barnabas.primitives.crc32c import crc32c
from barnabas.protocol.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from barnabas.protocol.messages.end_txn_request import EndTxnRequest
from barnabas.protocol.messages.init_producer_id_request import InitProducerIdRequest
from barnabas.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.records.builder import BatchBuilder
from barnabas.records.layout import (
    ATTRIBUTES_POSITION,
    CRC_POSITION,
    PRODUCER_ID_POSITION,
    TRANSACTIONAL_BIT,
)
from bench import load
from bench.beside import HOST, KAFKA, OURS, Results, Row, measure_load, report, tell
from bench.groups import find_coordinator
from bench.kafka import ApacheKafka, MeasuredBroker, MeasuredHost
from tests.peers.kafka_peer import V4, PeerUnavailable, jars

SECONDS: Final = float(os.environ.get("BENCH_SECONDS", "3"))
WARM_UP_S: Final = 5 * SECONDS
ROUNDS: Final = 5

TOPIC: Final = "ledger"
RECORDS: Final = 100
RECORD_BYTES: Final = 100
PRODUCERS: Final = 16
RETRY_S: Final = 0.001
TRANSACTION_KEY: Final = 1
CONCURRENT_TRANSACTIONS: Final = 51
CLIENT_S: Final = 60

ONE: Final = "transactions, 1 producer"
MANY: Final = f"transactions, {PRODUCERS} producers"
OLD_ONE: Final = "  version 1, 1 producer"
OLD_MANY: Final = f"  version 1, {PRODUCERS} producers"
CONFLUENT: Final = "confluent-kafka, 1 producer"

ROWS: Final = (
    Row(title=ONE, unit="/s", measurements=(ONE,), ratio_min=2.0),
    Row(title=MANY, unit="/s", measurements=(MANY,), ratio_min=2.0),
    Row(title="  2 brokers", unit="/s", measurements=(MANY,), contender=HOST, ratio_min=2.0),
    Row(title=OLD_ONE, unit="/s", measurements=(OLD_ONE,), ratio_min=2.0),
    Row(title=OLD_MANY, unit="/s", measurements=(OLD_MANY,), ratio_min=2.0),
    Row(title="  version 1, 2 brokers", unit="/s", measurements=(OLD_MANY,), contender=HOST, ratio_min=2.0),
    Row(title=CONFLUENT, unit="/s", measurements=(CONFLUENT,)),
)

_PRODUCER: Final = struct.Struct(
    ">"
    "q"  # producer id
    "h"  # epoch
)
# Their order in a batch.
_PRODUCER_AND_SEQUENCE: Final = struct.Struct(
    ">"
    "q"  # producer id
    "h"  # epoch
    "i"  # base sequence
)
_CRC: Final = struct.Struct(">I")
_ERROR: Final = struct.Struct(">h")
# Stands in a request until it is sent, and is found there by its unlikely value.
_ANY: Final = (0x7B61726E61626173, 0x7B61)


def _batch() -> bytes:
    builder = BatchBuilder(base_offset=Offset(0))
    value = os.urandom(RECORD_BYTES)
    now_ms = int(time.time() * 1_000)
    for index in range(RECORDS):
        builder.append(TimestampMs(now_ms + index), None, value)
    batch = bytearray(builder.build())
    (attributes,) = struct.unpack_from(">h", batch, ATTRIBUTES_POSITION)
    struct.pack_into(">h", batch, ATTRIBUTES_POSITION, attributes | TRANSACTIONAL_BIT)
    return bytes(batch)


_BATCH: Final = _batch()


def run() -> bool:
    try:
        jars(V4)
    except PeerUnavailable as reason:
        print(f"\nNothing to compare with, so no target is shown to be met: {reason}")
        return False
    results = Results()
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        turns = [
            (KAFKA, stack.enter_context(ApacheKafka(folder / "kafka"))),
            (OURS, stack.enter_context(MeasuredBroker(folder / "ours"))),
            (HOST, stack.enter_context(MeasuredHost(folder / "host"))),
        ]
        for contender, broker in turns:
            broker.create_topic(TOPIC, PRODUCERS)
            find_coordinator(broker.port, "any", TRANSACTION_KEY)
            tell(f"warming for {WARM_UP_S:g} s: {contender}")
            for version in (2, 1):
                transactions(broker.port, PRODUCERS, version, WARM_UP_S / 2)
        for number in range(ROUNDS):
            tell(f"round {number + 1} of {ROUNDS}")
            for contender, broker in turns if number % 2 == 0 else reversed(turns):
                for measurement, work in _loads(broker.port).items():
                    if contender == HOST and measurement not in (MANY, OLD_MANY):
                        continue
                    done = measure_load(work)
                    results.add(measurement, contender, done.per_second, done.load_cores)
    all_met = report(
        f"Transactions of {RECORDS} records compared with Apache Kafka {V4}", ROWS, results, ROUNDS
    )
    print(
        "A ratio is ours to Kafka's, the median of the ratios of the rounds. The load's cores are what sending and\n"
        "receiving took beside Kafka and beside us."
    )
    return all_met


def _loads(port: int) -> dict[str, Callable[[], int]]:
    return {
        ONE: lambda: transactions(port, 1, 2, SECONDS),
        MANY: lambda: transactions(port, PRODUCERS, 2, SECONDS),
        OLD_ONE: lambda: transactions(port, 1, 1, SECONDS),
        OLD_MANY: lambda: transactions(port, PRODUCERS, 1, SECONDS),
        CONFLUENT: lambda: confluent_transactions(port, SECONDS),
    }


def transactions(port: int, producers: int, version: int, duration_s: float) -> int:
    """The number of transactions that this many producers have committed in that time, each in its own partition."""
    with ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        leaders = load.leader_ports(port, TOPIC)
        running = []
        for number in range(producers):
            coordinator_port = find_coordinator(port, _transactional_id(number), TRANSACTION_KEY)
            coordinator = stack.enter_context(load.connect(coordinator_port))
            # A client has one connection to a broker.
            leader = coordinator
            if leaders[number] != coordinator_port:
                leader = stack.enter_context(load.connect(leaders[number]))
            running.append(_RawProducer(coordinator, leader, number, version))
        for producer in running:
            for connected in {producer.coordinator, producer.leader}:
                selector.register(connected, selectors.EVENT_READ, producer)
            producer.send()
        # Told to come again; the first is to be asked first.
        waiting: deque[tuple[float, _RawProducer]] = deque()
        end_s = time.perf_counter() + duration_s
        give_up_s = end_s + load.TIMEOUT_S
        while any(producer.is_under_way for producer in running):
            now_s = time.perf_counter()
            assert now_s < give_up_s, f"transactions are not over {load.TIMEOUT_S} s later"
            while waiting and waiting[0][0] <= now_s:
                waiting.popleft()[1].send()
            for key, _ in selector.select(RETRY_S if waiting else 1.0):
                producer = key.data
                if producer.receive():
                    producer.is_under_way = producer.step > 0 or now_s < end_s
                    if producer.is_under_way:
                        producer.send()
                else:
                    waiting.append((now_s + RETRY_S, producer))
    return sum(producer.committed for producer in running)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """A request of a transaction, and where in it and in its answer stands what changes."""

    frame: bytearray
    producer_position: int
    error_position: int
    # Of the batch, in a Produce; of the next producer id and epoch, in the answer to an EndTxn of version 5.
    batch_position: int | None = None
    next_position: int | None = None


class _RawProducer:
    """A transactional producer that sends the same batch again and again, in one transaction each.

    Its requests are encoded once, and the fields that change are written into them. The load is therefore small
    compared with the broker's work.
    """

    def __init__(self, coordinator: socket.socket, leader: socket.socket, number: int, version: int) -> None:
        self.coordinator = coordinator
        self.leader = leader
        self.is_under_way = True
        self.committed = 0
        self.step = 0
        transactional_id = _transactional_id(number)
        self._producer = _init_producer(coordinator, transactional_id)
        self._sequence = 0
        self._buffer = bytearray(1 << 12)
        self._steps = [_produce_step(transactional_id, number, version), _end_step(transactional_id, version)]
        if version == 1:
            self._steps.insert(0, _add_step(transactional_id, number))

    def send(self) -> None:
        step = self._steps[self.step]
        if step.batch_position is None:
            _PRODUCER.pack_into(step.frame, step.producer_position, *self._producer)
        else:
            _PRODUCER_AND_SEQUENCE.pack_into(
                step.frame, step.batch_position + PRODUCER_ID_POSITION, *self._producer, self._sequence
            )
            checked = memoryview(step.frame)[step.batch_position + ATTRIBUTES_POSITION :][
                : self._checked_bytes
            ]
            _CRC.pack_into(step.frame, step.batch_position + CRC_POSITION, crc32c(checked))
        self._connected(step).sendall(step.frame)

    def _connected(self, step: _Step) -> socket.socket:
        """Records go to the leader of the partition, everything else to the coordinator."""
        return self.coordinator if step.batch_position is None else self.leader

    _checked_bytes = len(_BATCH) - ATTRIBUTES_POSITION

    def receive(self) -> bool:
        """Takes an answer; whether the next step is to be done, else the same again a little later."""
        step = self._steps[self.step]
        answer = load.read_frame(self._connected(step), self._buffer)
        (error_code,) = _ERROR.unpack_from(answer, step.error_position)
        if error_code == CONCURRENT_TRANSACTIONS:
            return False
        assert error_code == 0, f"step {self.step} of {len(self._steps)} got the error {error_code}"
        if step.batch_position is not None:
            self._sequence += RECORDS
        if step.next_position is not None:
            self._producer = _PRODUCER.unpack_from(answer, step.next_position)
            self._sequence = 0
        self.step = (self.step + 1) % len(self._steps)
        self.committed += self.step == 0
        return True


def _transactional_id(number: int) -> str:
    return f"bench-{number}"


def _init_producer(connected: socket.socket, transactional_id: str) -> tuple[int, int]:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    deadline_s = time.monotonic() + load.TIMEOUT_S
    while True:
        answer = load.ask(connected, "InitProducerId", 4, request)
        if answer.error_code == 0:
            return answer.producer_id, answer.producer_epoch
        assert time.monotonic() < deadline_s, answer
        time.sleep(RETRY_S)


def _add_step(transactional_id: str, partition: int) -> _Step:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=_ANY[0],
        v3_and_below_producer_epoch=_ANY[1],
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=[partition])],
    )
    frame = bytearray(load.frame("AddPartitionsToTxn", 3, request))
    # Correlation id, tags, throttle time, one topic with its name, one partition with its number.
    return _Step(
        frame=frame,
        producer_position=frame.index(_PRODUCER.pack(*_ANY)),
        error_position=4 + 1 + 4 + 1 + 1 + len(TOPIC) + 1 + 4,
    )


def _produce_step(transactional_id: str, partition: int, version: int) -> _Step:
    data = [PartitionProduceData(index=partition, records=_BATCH)]
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=TOPIC, partition_data=data)],
    )
    frame = bytearray(load.frame("Produce", 11 if version == 1 else 12, request))
    # Correlation id, tags, one topic with its name, one partition with its number.
    return _Step(
        frame=frame,
        producer_position=-1,
        batch_position=frame.index(_BATCH),
        error_position=4 + 1 + 1 + 1 + len(TOPIC) + 1 + 4,
    )


def _end_step(transactional_id: str, version: int) -> _Step:
    request = EndTxnRequest(
        transactional_id=transactional_id, producer_id=_ANY[0], producer_epoch=_ANY[1], committed=True
    )
    frame = bytearray(load.frame("EndTxn", 3 if version == 1 else 5, request))
    # Correlation id, tags, throttle time.
    error_position = 4 + 1 + 4
    return _Step(
        frame=frame,
        producer_position=frame.index(_PRODUCER.pack(*_ANY)),
        error_position=error_position,
        next_position=None if version == 1 else error_position + _ERROR.size,
    )


def confluent_transactions(port: int, duration_s: float) -> int:
    producer = Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "transactional.id": "confluent",
            "linger.ms": 0,
            "log_level": 0,
        }
    )
    producer.init_transactions(CLIENT_S)
    value = os.urandom(RECORD_BYTES)
    end_s = time.perf_counter() + duration_s
    count = 0
    while time.perf_counter() < end_s:
        producer.begin_transaction()
        for _ in range(RECORDS):
            producer.produce(TOPIC, value, partition=0)
        producer.commit_transaction(CLIENT_S)
        count += 1
    return count
