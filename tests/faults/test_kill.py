"""SIGKILL under load: after each restart nothing that was acknowledged is missing, out of order, or there twice.

The moments are random, from a seed: after a while of load, and now and then while the broker is starting.
`make soak` kills 200 times; FAULTS_KILLS sets another number.
"""

from __future__ import annotations

import os
import random
import time
from collections import defaultdict
from pathlib import Path

import pytest

from barnabas.protocol.messages.metadata_request import MetadataRequest
from barnabas.records.header import iterate_headers
from barnabas.records.reader import decode_batch
from tests.broker.raw_client import RawClient
from tests.broker.record_requests import create_topic, fetch
from tests.clients.broker_process import BrokerProcess
from tests.faults.producers import (
    ConfluentProducer,
    LoadProducer,
    RawProducer,
    TopicMaker,
    parse_value,
    wait_for_load,
)

TOPIC = "load"
PARTITIONS = 4
SEED = 5
KILLS = int(os.environ.get("FAULTS_KILLS", "200" if os.environ.get("BARNABAS_SOAK") == "1" else "8"))
WAIT_S = 120
FETCH_BYTES = 8 << 20


class Reader:
    """What lies in the partitions, read on from where it was read before."""

    def __init__(self) -> None:
        self.records: dict[int, list[tuple[str, int]]] = defaultdict(list)

    def read_on(self, client: RawClient) -> None:
        for partition in range(PARTITIONS):
            records = self.records[partition]
            while True:
                found = fetch(client, TOPIC, len(records), partition=partition, max_bytes=FETCH_BYTES)
                assert found.error_code == 0, found
                if len(records) >= found.high_watermark:
                    assert len(records) == found.high_watermark, "records that were read have gone"
                    break
                self._take(records, bytes(found.records))

    def _take(self, records: list[tuple[str, int]], data: bytes) -> None:
        position = 0
        for header in iterate_headers(data):
            for record in decode_batch(data, position, header=header):
                if record.offset >= len(records):
                    assert record.offset == len(records), f"no record has offset {len(records)}"
                    assert record.value is not None
                    records.append(parse_value(record.value))
            position += header.size_bytes


def check(producers: list[LoadProducer], reader: Reader, acknowledged: dict[str, dict[int, int]]) -> None:
    for producer in producers:
        records = reader.records[producer.partition]
        producer.check([number for name, number in records if name == producer.name])
        for number, offset in acknowledged[producer.name].items():
            assert offset < len(records), (
                f"{producer.name}: {number} was acknowledged at {offset} and is missing"
            )
            assert records[offset] == (producer.name, number), f"{producer.name}: {number} is not at {offset}"


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_by_kills(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    broker = BrokerProcess(
        tmp_path / "data",
        {
            "log.flush.offset.checkpoint.interval.ms": "300",
            "log.retention.check.interval.ms": "1000",
            "log.initial.task.delay.ms": "100",
        },
    )
    producers: list[LoadProducer] = [
        RawProducer(broker, "acks-1", TOPIC, 0, acks=1),
        RawProducer(broker, "acks-all", TOPIC, 0, acks=-1),
        RawProducer(broker, "idempotent", TOPIC, 1, acks=-1, idempotent=True, in_flight_max=1),
        RawProducer(broker, "five-in-flight", TOPIC, 2, acks=1, idempotent=True),
        ConfluentProducer(broker, "confluent", TOPIC, 3),
    ]
    topics = TopicMaker(broker)
    reader = Reader()
    with broker:
        with broker.client() as client:
            create_topic(client, TOPIC, PARTITIONS, segment_bytes="1048576")
        for producer in producers:
            producer.start()
        topics.start()
        try:
            for _ in range(KILLS):
                wait_for_load(producers, 1, WAIT_S)
                time.sleep(rng.uniform(0, 0.4))
                broker.kill()
                while rng.random() < 0.2:
                    broker.begin_start()
                    time.sleep(rng.uniform(0, 0.6))
                    broker.kill()
                # What was acknowledged before the kill; the producers go on as soon as the broker is back.
                acknowledged = {each.name: dict(each.acknowledged) for each in producers}
                confirmed = list(topics.confirmed)
                broker.start()
                with broker.client() as client:
                    reader.read_on(client)
                    check(producers, reader, acknowledged)
                    metadata = client.ask("Metadata", 9, MetadataRequest(topics=None))
                    assert set(confirmed) <= {topic.name for topic in metadata.topics}
            wait_for_load(producers, 10, WAIT_S)
        finally:
            topics.stop()
            for producer in producers:
                producer.stop()
        for producer in producers:
            producer.check_alive()
        with broker.client() as client:
            for everything in (reader, Reader()):
                everything.read_on(client)
                check(producers, everything, {each.name: each.acknowledged for each in producers})
        assert "Traceback" not in broker.log_file.read_text()
        assert broker.stop() == 0
