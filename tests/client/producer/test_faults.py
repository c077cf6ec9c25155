"""The idempotent producer under faults: nothing lost, nothing twice, everything in order."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.client.failures import BufferExhausted
from barnabas.client.producer.futures import SendFuture
from barnabas.client.producer.producer import Producer
from barnabas.protocol.messages.delete_topics_request import DeleteTopicsRequest
from tests.broker.record_requests import create_topic
from tests.client.proxy import Plan, Proxy, seeded
from tests.client.reading import known, read_values
from tests.clients.broker_process import BrokerProcess, restarting
from tests.waiting import Deadline

WAIT_S = 90


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with Proxy() as running:
        yield running


@pytest.fixture
def proxied(tmp_path: Path, proxy: Proxy) -> Iterator[BrokerProcess]:
    """A broker that tells its clients to come through the proxy."""
    broker = BrokerProcess(tmp_path / "data", {"advertised.listeners": f"PLAINTEXT://{proxy.address}"})
    proxy.target_port = broker.port
    with broker:
        yield broker


def settings(address: str, **others: object) -> dict[str, object]:
    return {
        "bootstrap.servers": address,
        "retry.backoff.ms": 5,
        "retry.backoff.max.ms": 50,
        "reconnect.backoff.ms": 5,
        "reconnect.backoff.max.ms": 50,
        "linger.ms": 1,
        **others,
    }


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_connections_cut_at_any_byte(proxied: BrokerProcess, proxy: Proxy, seed: int) -> None:
    with proxied.client() as client:
        create_topic(client, "t", 2)
    proxy.planner = seeded(seed, longest=60_000)
    chooser = random.Random(seed)
    sent: list[list[bytes]] = [[], []]
    with Producer(settings(proxy.address, **{"batch.size": 2_000})) as producer:
        for number in range(4_000):
            partition = chooser.randrange(2)
            value = b"%d" % number + bytes(chooser.randrange(200))
            producer.send("t", value, partition=partition)
            sent[partition].append(value)
        producer.flush(timeout_ms=WAIT_S * 1000)
    assert proxy.cuts > 0
    assert read_values(proxied, "t", 2) == sent


@pytest.mark.slow
def test_every_byte_of_an_answer(proxied: BrokerProcess, proxy: Proxy) -> None:
    """A connection that dies after each single byte of its answers, one connection after the other."""
    with proxied.client() as client:
        create_topic(client, "t")
    proxy.planner = lambda number: Plan(cut_responses_after=1 + 7 * number) if number < 120 else Plan()
    sent = numbers(600)
    with Producer(settings(proxy.address, **{"linger.ms": 0})) as producer:
        for value in sent:
            producer.send("t", value)
        producer.flush(timeout_ms=WAIT_S * 1000)
    assert proxy.cuts > 10
    assert read_values(proxied, "t") == [sent]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_broker_restarted_under_load(tmp_path: Path, how: str) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        with broker.client() as client:
            create_topic(client, "t")
        is_over = threading.Event()
        count = itertools.count()
        with Producer(settings(broker.address)) as producer:

            def load() -> None:
                while not is_over.wait(0.0005):
                    producer.send("t", b"%d" % next(count))

            loader = threading.Thread(target=load)
            loader.start()
            try:
                if how == "killed":
                    for _ in range(2):
                        broker.kill()
                        broker.start()
                else:
                    with restarting(broker, times=2) as up_again:
                        assert up_again.wait(WAIT_S)
            finally:
                is_over.set()
                loader.join()
            last = producer.send("t", b"last")
            producer.flush(timeout_ms=WAIT_S * 1000)
            offset = last.result(WAIT_S).offset
        [values] = read_values(broker, "t")
    assert values == [*numbers(next(count)), b"last"]
    assert offset == len(values) - 1


@pytest.mark.slow
@pytest.mark.parametrize("acks", ["all", 0])
def test_a_broker_that_freezes_fills_no_more_than_its_memory(
    proxied: BrokerProcess, proxy: Proxy, acks: object
) -> None:
    with proxied.client() as client:
        create_topic(client, "t")
    small = {"buffer.memory": 1 << 20, "max.block.ms": 200, "send.buffer.bytes": 65_536, "acks": acks}
    with Producer(settings(proxy.address, **small)) as producer:
        known(producer, "t")
        producer.send("t", b"first").result(WAIT_S)
        proxy.hold()
        taken: list[SendFuture] = []
        with pytest.raises(BufferExhausted):
            taken.extend(producer.send("t", bytes(1_000)) for _ in range(100_000))
        # Without acknowledgements, what the system has taken to be sent is done: a few buffers of its own.
        assert 500 < len(taken) < (20_000 if acks == 0 else (1 << 20) // 1_000)
        proxy.release()
        producer.flush(timeout_ms=WAIT_S * 1000)
        deadline = Deadline(WAIT_S)
        while len(read_values(proxied, "t")[0]) < len(taken) + 1:
            assert acks == 0
            deadline.check("all records arrive")
    assert len(read_values(proxied, "t")[0]) == len(taken) + 1


@pytest.mark.slow
def test_requests_that_time_out_are_sent_again(proxied: BrokerProcess, proxy: Proxy) -> None:
    with proxied.client() as client:
        create_topic(client, "t")
    with Producer(settings(proxy.address, **{"request.timeout.ms": 300})) as producer:
        producer.send("t", b"first").result(WAIT_S)
        futures = []
        for round_number in range(3):
            proxy.hold()
            futures += [producer.send("t", b"%d" % (100 * round_number + number)) for number in range(100)]
            with pytest.raises(TimeoutError):
                futures[-1].result(0.5)
            proxy.release()
        assert [future.result(WAIT_S).offset for future in futures] == list(range(1, 301))
        assert producer.metrics()["record-retry-total"] >= 3
    assert read_values(proxied, "t") == [[b"first", *numbers(300)]]


@pytest.mark.slow
def test_a_wall_clock_that_jumps_does_not_matter(proxied: BrokerProcess, proxy: Proxy) -> None:
    """Durations are measured by a clock that never goes back: only timestamps follow the wall clock."""
    with proxied.client() as client:
        create_topic(client, "t", message_timestamp_after_max_ms=str(2**62))
    jumps_ms = itertools.cycle((0, -86_400_000, 86_400_000, -1_700_000_000_000))
    sent = numbers(300)
    with Producer(settings(proxy.address)) as producer:
        futures = []
        for value in sent:
            futures.append(producer.send("t", value, timestamp_ms=1_700_000_000_000 + next(jumps_ms)))
            if len(value) == 2:
                proxy.cut_all()
        producer.flush(timeout_ms=WAIT_S * 1000)
        assert futures[3].result(WAIT_S).timestamp_ms == 0
    assert read_values(proxied, "t") == [sent]


@pytest.mark.slow
def test_a_topic_that_is_made_anew_is_found(tmp_path: Path) -> None:
    """What the producer knows of the topic is stale: another id, fewer partitions, and nothing of its sequences."""
    with BrokerProcess(tmp_path / "data") as broker, Producer(settings(broker.address)) as producer:
        with broker.client() as client:
            create_topic(client, "t", 1)
            for number in range(50):
                producer.send("t", b"old %d" % number).result(WAIT_S)
            client.ask("DeleteTopics", 5, DeleteTopicsRequest(topic_names=["t"], timeout_ms=30_000))
            create_topic(client, "t", 1)
        futures = [producer.send("t", b"new %d" % number) for number in range(50)]
        assert [future.result(WAIT_S).offset for future in futures] == list(range(50))
        assert read_values(broker, "t") == [[b"new %d" % number for number in range(50)]]
