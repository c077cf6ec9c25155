"""Mistakes in calls are named, with what to do instead: on the clients themselves and on a broker."""

from __future__ import annotations

import asyncio
import inspect
import queue
from typing import Any, cast

import pytest

import barnabas
import barnabas.aio
import barnabas.testing
from barnabas.client.producer.serializers import to_headers
from barnabas.errors import (
    InvalidConfig,
    KafkaError,
    NetworkException,
    RequestTimedOut,
    SerializationError,
    UnknownSetting,
)

WAIT_S = 60
WAIT_MS = 60_000
NOBODY = "127.0.0.1:1"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: barnabas.Consumer(cast(Any, "payments")),
            r"not the topic 'payments'.*subscribe\(\['payments'\]\)",
        ),
        (lambda: barnabas.Consumer(cast(Any, "host:9092")), r"Consumer\(bootstrap_servers='host:9092'\)"),
        (lambda: barnabas.Producer(cast(Any, "host:9092")), r"Producer\(bootstrap_servers='host:9092'\)"),
        (lambda: barnabas.Admin(cast(Any, ["host:9092"])), "as keywords or as a mapping, and not"),
        (lambda: barnabas.Producer(linger_ms=1), "bootstrap.servers is missing"),
        (lambda: barnabas.Producer(bootstrap_servers=9092), "bootstrap.servers"),
        (lambda: barnabas.Producer(bootstrap_servers=NOBODY, on_error="print"), r"on\.error"),
        (lambda: barnabas.Producer(bootstrap_servers=NOBODY, linger_ms="soon"), r"linger\.ms"),
    ],
)
def test_what_is_no_setting_is_named(make: Any, words: str) -> None:
    with pytest.raises(InvalidConfig, match=words):
        make()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("linger", "did you mean linger.ms"),
        ("queue.buffering.max.ms", r"use linger\.ms \(linger_ms as a keyword\)"),
        ("ssl_cafile", r"use ssl\.truststore\.location and the type PEM"),
        ("api_version", "leave it out"),
        ("stats_cb", r"call metrics\(\)"),
        ("utterly.wrong", "see the documentation"),
    ],
)
def test_settings_of_other_clients_have_hints(name: str, words: str) -> None:
    with pytest.raises(UnknownSetting, match=words):
        barnabas.Producer({"bootstrap.servers": NOBODY, name: "1"})


def test_time_outs_have_one_spelling() -> None:
    """Every method of every client that waits, and of brokers for tests: `timeout_ms`."""
    clients = [
        barnabas.Producer,
        barnabas.Consumer,
        barnabas.Admin,
        barnabas.aio.Producer,
        barnabas.aio.Consumer,
        barnabas.aio.Admin,
        barnabas.testing.Broker,
        barnabas.testing.Cluster,
        barnabas.testing.ZooKeeper,
    ]
    refusing = 0
    for client in clients:
        for name in dir(client):
            method = getattr(client, name)
            if name.startswith("_") or not callable(method):
                continue
            named = inspect.signature(method).parameters
            assert not {"timeout", "timeout_s", "timeout_seconds", "wait_s"} & set(named), (
                f"{client.__name__}.{name}"
            )
            refusing += "timeout_ms" in named
    assert refusing > 100


def test_the_other_spelling_has_a_hint() -> None:
    with barnabas.Producer(bootstrap_servers=NOBODY) as producer:
        wrong: Any = producer
        for call in (wrong.flush, wrong.close, wrong.commit_transaction, wrong.init_transactions):
            for arguments, keywords in (((5,), {}), ((), {"timeout": 5})):
                with pytest.raises(
                    TypeError, match=r"takes timeout_ms.*timeout_ms=5000 if you meant seconds"
                ):
                    call(*arguments, **keywords)
        # Nothing is zero in any unit.
        wrong.flush(0)
        wrong.flush(timeout=0)
    with (
        barnabas.Consumer(bootstrap_servers=NOBODY) as consumer,
        pytest.raises(TypeError, match=r"poll\(\) takes timeout_ms.*timeout_ms=500 "),
    ):
        cast(Any, consumer).poll(timeout=0.5)
    with (
        barnabas.Admin(bootstrap_servers=NOBODY) as admin,
        pytest.raises(TypeError, match=r"list_topics\(\) takes timeout_ms"),
    ):
        cast(Any, admin).list_topics(timeout=5)
    with pytest.raises(TypeError, match=r"close\(\) takes timeout_ms.*timeout_ms=5000 "):
        cast(Any, admin).close(timeout=5)
    with (
        barnabas.Producer(bootstrap_servers=NOBODY) as producer,
        pytest.raises(TypeError, match=r"partitions_for\(\) takes timeout_ms.*timeout_ms=5000 "),
    ):
        cast(Any, producer).partitions_for("orders", timeout=5)


def test_calls_end_after_their_time_out() -> None:
    with (
        barnabas.Producer(bootstrap_servers=NOBODY) as producer,
        pytest.raises(RequestTimedOut, match="partitions of topic 'orders' was not done within 20 ms"),
    ):
        producer.partitions_for("orders", timeout_ms=20)
    admin = barnabas.Admin(bootstrap_servers=NOBODY)
    admin.close(timeout_ms=WAIT_MS)
    assert admin._thread.is_closed
    admin.close(timeout_ms=0)

    async def close() -> None:
        async with barnabas.aio.Producer(bootstrap_servers=NOBODY) as writer:
            with pytest.raises(RequestTimedOut, match="was not done within 20 ms"):
                await writer.partitions_for("orders", timeout_ms=20)
        await barnabas.aio.Admin(bootstrap_servers=NOBODY).close(timeout_ms=0)

    asyncio.run(close())


def test_the_other_spelling_has_a_hint_in_asyncio() -> None:
    async def test() -> None:
        async with (
            barnabas.aio.Producer(bootstrap_servers=NOBODY) as producer,
            barnabas.aio.Consumer(bootstrap_servers=NOBODY) as consumer,
            barnabas.aio.Admin(bootstrap_servers=NOBODY) as admin,
        ):
            for call in (producer.flush, consumer.poll, admin.list_topics):
                assert inspect.iscoroutinefunction(call)
                with pytest.raises(TypeError, match="takes timeout_ms"):
                    await cast(Any, call)(timeout=5)

    asyncio.run(test())


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda consumer: consumer.subscribe(5), r"5 is no list: give names of topics, such as \['orders'\]"),
        (lambda consumer: consumer.subscribe([5]), "5 cannot be the name of a topic"),
        (lambda consumer: consumer.subscribe([None]), "None cannot be the name of a topic"),
        (lambda consumer: consumer.subscribe(pattern=5), "5 is no pattern"),
        (lambda consumer: consumer.assign(5), r"5 is no list: give partitions, such as \[\('orders', 0\)\]"),
        (lambda consumer: consumer.assign(["orders"]), r"'orders' is no partition"),
        (lambda consumer: consumer.commit(5), "5 is no mapping of partitions to offsets"),
        (lambda consumer: consumer.commit({("t", 0): "5"}), "'5' is no offset to commit"),
        (
            lambda consumer: consumer.commit({("t", 0): barnabas.OffsetAndMetadata(5, cast(Any, b""))}),
            "is no text",
        ),
        (lambda consumer: consumer.offsets_for_times(5), "5 is no mapping of partitions to times"),
        (lambda consumer: consumer.offsets_for_times({("t", 0): "now"}), "'now' is no time"),
        (lambda consumer: consumer.poll(max_records="1"), "max_records='1' must be a number"),
    ],
)
def test_other_types_are_named(call: Any, words: str) -> None:
    with (
        barnabas.Consumer(bootstrap_servers=NOBODY, group_id="g") as consumer,
        pytest.raises(KafkaError, match=words),
    ):
        call(consumer)
    # The consumer for asyncio has the same checks.

    async def test() -> None:
        async with barnabas.aio.Consumer(bootstrap_servers=NOBODY, group_id="g") as consumer:
            result = call(consumer)
            if inspect.isawaitable(result):
                await result

    with pytest.raises(KafkaError, match=words):
        asyncio.run(test())


def test_a_time_out_that_is_no_number_is_named() -> None:
    wrong: Any = "5"
    words = r"\(\) takes timeout_ms as a number of milliseconds, and not '5'"
    with barnabas.Consumer(bootstrap_servers=NOBODY) as consumer:
        with pytest.raises(TypeError, match="poll" + words):
            consumer.poll(wrong)
        with pytest.raises(TypeError, match="poll" + words):
            consumer.poll(timeout_ms=wrong)
        with pytest.raises(TypeError, match="topics" + words):
            consumer.topics(timeout_ms=wrong)
        # None is a time-out only where it is the default.
        nothing: Any = None
        for call, name in ((consumer.poll, "poll"), (consumer.close, "close")):
            with pytest.raises(TypeError, match=name + words.replace("'5'", "None")):
                call(nothing)
    with (
        barnabas.Producer(bootstrap_servers=NOBODY) as producer,
        pytest.raises(TypeError, match="flush" + words),
    ):
        producer.flush(timeout_ms=wrong)

    async def test() -> None:
        async with (
            barnabas.aio.Consumer(bootstrap_servers=NOBODY) as consumer,
            barnabas.aio.Producer(bootstrap_servers=NOBODY) as producer,
        ):
            with pytest.raises(TypeError, match="poll" + words):
                await consumer.poll(wrong)
            with pytest.raises(TypeError, match="flush" + words):
                await producer.flush(timeout_ms=wrong)

    asyncio.run(test())


def test_what_is_no_header_is_named_without_a_setting_that_does_not_exist() -> None:
    with pytest.raises(SerializationError, match=r"header is of type int.*encode it first") as raised:
        to_headers(cast(Any, [("attempt", 1)]))
    assert "header_serializer" not in str(raised.value)
    with pytest.raises(SerializationError, match="headers are pairs"):
        to_headers(cast(Any, 5))


def test_errors_of_connections_are_told() -> None:
    told: queue.Queue[KafkaError] = queue.Queue()

    def tell(error: KafkaError) -> None:
        told.put(error)
        raise RuntimeError("a hook that fails is logged, and nothing else happens")

    with barnabas.Consumer(bootstrap_servers=NOBODY, on_error=tell) as consumer:
        consumer.assign([("t", 0)])
        assert consumer.poll(0) == []
        assert isinstance(told.get(timeout=WAIT_S), NetworkException)
        assert consumer.metrics()["failed-connection-total"] >= 1
