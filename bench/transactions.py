"""Transactions beside Apache Kafka, in turns, in one run.

A transaction is a batch of 100 records to one partition and its commit, one transaction after the other, each request
when the one before is answered. By raw requests (bench/load.py): as clients of transaction version 2 do it (Produce
adds the partition by itself, every end has a new epoch) and as older ones do (AddPartitionsToTxn first); from one
producer, and from many at once. At last by confluent-kafka, for the view of a client.

While the broker still ends the last transaction it answers CONCURRENT_TRANSACTIONS, and the producer asks again soon.
BENCH_SECONDS is the time of one load; the time to warm up follows from it.
"""

from __future__ import annotations

import os
import socket
import struct
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer

from barnabas.model import Offset
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
from bench.beside import KAFKA, OURS, Figures, Row, measure_load, report, tell
from bench.groups import find_coordinator
from bench.kafka import ApacheKafka, MeasuredBroker
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
    Row(title=ONE, unit="/s", figures=(ONE,), ratio_min=2.0),
    Row(title=MANY, unit="/s", figures=(MANY,), ratio_min=2.0),
    Row(title=OLD_ONE, unit="/s", figures=(OLD_ONE,), ratio_min=2.0),
    Row(title=OLD_MANY, unit="/s", figures=(OLD_MANY,), ratio_min=2.0),
    Row(title=CONFLUENT, unit="/s", figures=(CONFLUENT,)),
)

# Producer id, epoch and sequence stand side by side in a batch.
_PRODUCER: Final = struct.Struct(">qhi")


def run() -> bool:
    try:
        jars(V4)
    except PeerUnavailable as reason:
        print(f"\nNothing to compare with, so no target is shown to be met: {reason}")
        return False
    figures = Figures()
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        turns = [
            (KAFKA, stack.enter_context(ApacheKafka(folder / "kafka"))),
            (OURS, stack.enter_context(MeasuredBroker(folder / "ours"))),
        ]
        for contender, broker in turns:
            broker.create_topic(TOPIC, PRODUCERS)
            find_coordinator(broker.port, "any", TRANSACTION_KEY)
            tell(f"warming for {WARM_UP_S:g} s: {contender}")
            for version in (2, 1):
                transactions_together(broker.port, version, WARM_UP_S / 2)
        for number in range(ROUNDS):
            tell(f"round {number + 1} of {ROUNDS}")
            for contender, broker in turns if number % 2 == 0 else reversed(turns):
                for figure, work in _loads(broker.port).items():
                    done = measure_load(work)
                    figures.add(figure, contender, done.per_second, done.load_cores)
    all_met = report(f"Transactions of {RECORDS} records beside Apache Kafka {V4}", ROWS, figures, ROUNDS)
    print(
        "A ratio is ours to Kafka's, the median of the ratios of the rounds. The load's cores are what sending and\n"
        "receiving took beside Kafka and beside us."
    )
    return all_met


def _loads(port: int) -> dict[str, Callable[[], int]]:
    return {
        ONE: lambda: transactions(port, 0, 2, SECONDS),
        MANY: lambda: transactions_together(port, 2, SECONDS),
        OLD_ONE: lambda: transactions(port, 0, 1, SECONDS),
        OLD_MANY: lambda: transactions_together(port, 1, SECONDS),
        CONFLUENT: lambda: confluent_transactions(port, SECONDS),
    }


def transactions_together(port: int, version: int, duration_s: float) -> int:
    def worker(number: int) -> Callable[[], int]:
        return lambda: transactions(port, number, version, duration_s)

    return sum(load.in_threads([worker(number) for number in range(PRODUCERS)]))


def transactions(port: int, number: int, version: int, duration_s: float) -> int:
    """How many transactions one producer has committed in that time, in a partition of its own."""
    with load.connect(port) as connected:
        producer = _RawProducer(connected, number, version)
        end_s = time.perf_counter() + duration_s
        count = 0
        while time.perf_counter() < end_s:
            producer.commit_one()
            count += 1
    return count


class _RawProducer:
    """A transactional producer that sends the same batch over and over, in a transaction each."""

    def __init__(self, connected: socket.socket, number: int, version: int) -> None:
        self._connected = connected
        self._transactional_id = f"bench-{number}"
        self._partition = number
        self._version = version
        self._batch = _batch()
        self._sequence = 0
        init = InitProducerIdRequest(transactional_id=self._transactional_id, transaction_timeout_ms=60_000)
        answer = self._insist("InitProducerId", 4, init, lambda found: found.error_code)
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch

    def commit_one(self) -> None:
        if self._version == 1:
            self._add_partition()
        self._produce()
        end = EndTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=True,
        )
        if self._version == 1:
            self._insist("EndTxn", 3, end, lambda found: found.error_code)
        else:
            ended = self._insist("EndTxn", 5, end, lambda found: found.error_code)
            self._producer_id, self._epoch = ended.producer_id, ended.producer_epoch
            self._sequence = 0

    def _add_partition(self) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._transactional_id,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=[self._partition])],
        )
        self._insist(
            "AddPartitionsToTxn",
            3,
            request,
            lambda found: found.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code,
        )

    def _produce(self) -> None:
        batch = self._batch
        _PRODUCER.pack_into(batch, PRODUCER_ID_POSITION, self._producer_id, self._epoch, self._sequence)
        struct.pack_into(">I", batch, CRC_POSITION, crc32c(memoryview(batch)[ATTRIBUTES_POSITION:]))
        data = [PartitionProduceData(index=self._partition, records=bytes(batch))]
        request = ProduceRequest(
            transactional_id=self._transactional_id,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name=TOPIC, partition_data=data)],
        )
        self._insist(
            "Produce",
            11 if self._version == 1 else 12,
            request,
            lambda found: found.responses[0].partition_responses[0].error_code,
        )
        self._sequence += RECORDS

    def _insist(self, api: str, version: int, body: Any, error_of: Callable[[Any], int]) -> Any:
        deadline_s = time.monotonic() + load.TIMEOUT_S
        while True:
            answer = load.ask(self._connected, api, version, body)
            error_code = error_of(answer)
            if error_code == 0:
                return answer
            assert error_code in (CONCURRENT_TRANSACTIONS, 14, 15, 16), f"{api}: error {error_code}"
            assert time.monotonic() < deadline_s, f"{api}: error {error_code} for {load.TIMEOUT_S} s"
            time.sleep(RETRY_S)


def _batch() -> bytearray:
    builder = BatchBuilder(base_offset=Offset(0))
    value = os.urandom(RECORD_BYTES)
    for index in range(RECORDS):
        builder.append(1_700_000_000_000 + index, None, value)  # type: ignore[arg-type]
    batch = bytearray(builder.build())
    (attributes,) = struct.unpack_from(">h", batch, ATTRIBUTES_POSITION)
    struct.pack_into(">h", batch, ATTRIBUTES_POSITION, attributes | TRANSACTIONAL_BIT)
    return batch


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
