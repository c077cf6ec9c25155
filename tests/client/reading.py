"""What is in a topic, read without the producer that is tested."""

from __future__ import annotations

import time
from typing import Final

from barnabas.client.producer.producer import Producer
from barnabas.errors import RequestTimedOut
from barnabas.records.header import BatchHeader
from barnabas.records.reader import iterate_batches
from barnabas.records.record import Record
from tests.broker.raw_client import RawClient
from tests.broker.record_requests import fetch
from tests.clients.broker_process import BrokerProcess
from tests.waiting import Deadline

POLL_S: Final = 0.01


def known(producer: Producer, topic: str) -> str:
    """Waits until a producer knows a topic, which it may create, though each of its own waits may be short."""
    deadline = Deadline()
    while True:
        try:
            producer.partitions_for(topic, creates=True)
            return topic
        except RequestTimedOut:
            deadline.check(f"the producer knows {topic}")


def read_batches(
    client: RawClient, topic: str, partition: int = 0, *, isolation_level: int = 0
) -> list[tuple[BatchHeader, list[Record]]]:
    """All batches of a partition; control batches and, for read_committed, aborted ones are left out.

    A transaction that was ended is ended on its partitions a little later: read_committed waits for that.
    """
    if isolation_level:
        deadline = Deadline()
        while True:
            answer = fetch(client, topic, 0, partition=partition, isolation_level=1, max_bytes=1)
            if answer.last_stable_offset == answer.high_watermark:
                break
            deadline.check(f"a transaction of {topic}-{partition} stays open")
            time.sleep(POLL_S)
    found: list[tuple[BatchHeader, list[Record]]] = []
    offset = 0
    while True:
        answer = fetch(
            client, topic, offset, partition=partition, isolation_level=isolation_level, max_bytes=64 << 20
        )
        assert answer.error_code == 0, answer
        batches = list(iterate_batches(bytes(answer.records or b"")))
        if not batches:
            return found
        aborted = sorted((each.first_offset, each.producer_id) for each in answer.aborted_transactions or [])
        open_aborted: set[int] = set()
        for header, records in batches:
            while aborted and aborted[0][0] <= header.last_offset:
                open_aborted.add(aborted.pop(0)[1])
            if header.is_control:
                open_aborted.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in open_aborted):
                found.append((header, records))
        offset = batches[-1][0].last_offset + 1


def read_partition(
    client: RawClient, topic: str, partition: int = 0, *, isolation_level: int = 0
) -> list[Record]:
    return [
        record
        for _, records in read_batches(client, topic, partition, isolation_level=isolation_level)
        for record in records
    ]


def read_values(
    broker: BrokerProcess, topic: str, partitions: int = 1, *, isolation_level: int = 0
) -> list[list[bytes | None]]:
    """The values of each partition, in their order."""
    with broker.client() as client:
        return [
            [
                record.value
                for record in read_partition(client, topic, partition, isolation_level=isolation_level)
            ]
            for partition in range(partitions)
        ]
