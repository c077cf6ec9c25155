"""franz-go and KafkaJS, each by a small program of ours."""

from __future__ import annotations

from tests.broker.raw_client import RawClient
from tests.broker.record_requests import fetch, values
from tests.clients.broker_process import BrokerProcess
from tests.interop.programs import available, franz_go, kafkajs, run

COUNT = 500


def test_franz_go(broker: BrokerProcess) -> None:
    printed = run([*available(franz_go), broker.address, "franz-go"])
    assert printed == "all steps hold\n"


def test_kafkajs(broker: BrokerProcess) -> None:
    printed = run([*available(kafkajs), broker.address, "kafkajs"])
    assert printed == "all steps hold\n"
    with broker.client() as client:
        for compression in ("none", "gzip"):
            for name in ("0", "1", "idempotent"):
                check_records(client, f"kafkajs-{compression}-{name}")


def check_records(client: RawClient, topic: str) -> None:
    found: list[bytes | None] = []
    while len(found) < COUNT:
        # What was produced without acknowledgement may still be on its way.
        answer = fetch(client, topic, len(found), max_wait_ms=30_000)
        assert answer.error_code == 0
        records = values(answer.records)
        assert records, f"{topic} has {len(found)} records"
        found += records
    assert found == [None if number % 5 == 0 else b"value-%d" % number for number in range(COUNT)]
