"""How fast connections may be made: what the quota says, and what a listener makes of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from barnabas.broker.quotas.connections import ConnectionQuota
from barnabas.broker.quotas.quotas import CONNECTION_CREATION_RATE, DEFAULT, MAX_RATES, QuotaEntity, Quotas
from barnabas.clock import ManualClock
from barnabas.config.broker_config import BrokerConfig
from barnabas.net import listener
from barnabas.protocol.messages.metadata_request import MetadataRequest
from tests.broker.running import RunningBroker
from tests.net.test_connection import closing, connect, echo, frame, read_frame, run, serving
from tests.waiting import wait_until, wait_until_async

NEVER_MS = 3_600_000


def config(**settings: str) -> BrokerConfig:
    return BrokerConfig({name.replace("_", "."): value for name, value in settings.items()})


def rate_of(rate: int) -> BrokerConfig:
    return config(max_connection_creation_rate=str(rate))


def test_the_broker_in_all() -> None:
    clock = ManualClock()
    settings = rate_of(2)
    quota = ConnectionQuota(Quotas(), clock, lambda: settings)
    # Ten seconds are what a rate is measured over.
    assert [quota.delay_ms("PLAINTEXT") for _ in range(20)] == [0] * 20
    assert quota.delay_ms("PLAINTEXT") == 500
    assert quota.delay_ms("PLAINTEXT") == 1_000
    assert quota.delay_ms("PLAINTEXT") == 1_000, "never longer than a window at a time"
    settings = rate_of(1_000)
    assert quota.delay_ms("PLAINTEXT") == 0
    settings = rate_of(0)
    assert quota.delay_ms("PLAINTEXT") == 1_000
    settings = rate_of(2)
    clock.advance_ms(60_000)
    assert quota.delay_ms("PLAINTEXT") == 0


def test_each_listener_for_itself() -> None:
    clock = ManualClock()
    settings = BrokerConfig(
        {
            "listeners": "IN://:1,OUT://:2,BROKERS://:3",
            "listener.security.protocol.map": "IN:PLAINTEXT,OUT:PLAINTEXT,BROKERS:PLAINTEXT",
            "advertised.listeners": "IN://a:1,OUT://a:2,BROKERS://a:3",
            "inter.broker.listener.name": "BROKERS",
            "max.connection.creation.rate": "3",
            "listener.name.out.max.connection.creation.rate": "1",
        }
    )
    quota = ConnectionQuota(Quotas(), clock, lambda: settings)
    assert [quota.delay_ms("OUT") for _ in range(10)] == [0] * 10
    assert quota.delay_ms("OUT") == 1_000
    # Those count for the broker in all.
    assert [quota.delay_ms("IN") for _ in range(19)] == [0] * 19
    assert quota.delay_ms("IN") > 0
    # Brokers among themselves have their own bound alone.
    assert [quota.delay_ms("BROKERS") for _ in range(30)] == [0] * 30
    assert quota.delay_ms("BROKERS") > 0


def test_each_address_for_itself() -> None:
    books = Quotas()
    clock = ManualClock()
    settings = rate_of(1)
    quota = ConnectionQuota(books, clock, lambda: settings)
    assert [quota.refuse_ms("PLAINTEXT", "10.0.0.1") for _ in range(1_000)] == [0] * 1_000
    books.set_limits(QuotaEntity(ip=DEFAULT), {CONNECTION_CREATION_RATE: 1.0})
    books.set_limits(QuotaEntity(ip="10.0.0.9"), {CONNECTION_CREATION_RATE: 2.0})
    for address, allowed in (("10.0.0.1", 10), ("10.0.0.2", 10), ("10.0.0.9", 20)):
        assert [quota.refuse_ms("PLAINTEXT", address) for _ in range(allowed)] == [0] * allowed
        # What is refused is not counted: the next one has to wait no longer.
        refused = [quota.refuse_ms("PLAINTEXT", address) for _ in range(3)]
        assert refused == [1_000 if allowed == 10 else 500] * 3
    # It does not count for the broker in all, or for the listener, either.
    for _ in range(10):
        assert quota.delay_ms("PLAINTEXT") == 0
        assert quota.refuse_ms("PLAINTEXT", "10.0.0.1") > 0
    clock.advance_ms(60_000)
    assert quota.refuse_ms("PLAINTEXT", "10.0.0.1") == 0
    books.set_limits(QuotaEntity(ip="10.0.0.1"), {CONNECTION_CREATION_RATE: 0.0})
    assert quota.refuse_ms("PLAINTEXT", "10.0.0.1") == 1_000


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("0:0:0:0:0:0:0:1", "::1"),
        ("FE80::A", "fe80::a"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("10.0.0.1", "10.0.0.1"),
    ],
)
def test_an_address_may_be_written_in_several_ways(written: str, meant: str) -> None:
    books = Quotas()
    books.set_limits(QuotaEntity(ip=written), {CONNECTION_CREATION_RATE: 3.0})
    assert books.limit_of_ip(CONNECTION_CREATION_RATE, meant) == 3.0
    books.set_limits(QuotaEntity(ip=written), {})
    assert books.limit_of_ip(CONNECTION_CREATION_RATE, meant) is None


def test_a_name_stands_for_its_address() -> None:
    books = Quotas()
    books.set_limits(QuotaEntity(ip=DEFAULT), {CONNECTION_CREATION_RATE: 1.0})
    books.set_limits(QuotaEntity(ip="host"), {CONNECTION_CREATION_RATE: 3.0})
    assert books.limit_of_ip(CONNECTION_CREATION_RATE, "10.0.0.1") == 1.0
    books.note_addresses("host", ["10.0.0.1", "::1"])
    assert books.limit_of_ip(CONNECTION_CREATION_RATE, "10.0.0.1") == 3.0
    books.note_addresses("host", ["10.0.0.2"])
    assert books.limit_of_ip(CONNECTION_CREATION_RATE, "10.0.0.1") == 1.0
    assert books.limit_of_ip(CONNECTION_CREATION_RATE, "10.0.0.2") == 3.0
    books.set_limits(QuotaEntity(ip="10.0.0.2"), {CONNECTION_CREATION_RATE: 4.0})
    assert books.limit_of_ip(CONNECTION_CREATION_RATE, "10.0.0.2") == 4.0
    books.set_limits(QuotaEntity(ip="10.0.0.2"), {})
    books.set_limits(QuotaEntity(ip="host"), {})
    assert books.limit_of_ip(CONNECTION_CREATION_RATE, "10.0.0.2") == 1.0


def test_addresses_are_bounded() -> None:
    books = Quotas()
    books.set_limits(QuotaEntity(ip=DEFAULT), {CONNECTION_CREATION_RATE: 1.0})
    settings = rate_of(1)
    quota = ConnectionQuota(books, ManualClock(), lambda: settings)
    for number in range(MAX_RATES + 10):
        quota.refuse_ms("PLAINTEXT", f"10.0.{number // 256}.{number % 256}")
    assert len(quota._rates_by_address) == MAX_RATES


class ScriptedQuota:
    """Says what it is told to, and remembers when it was asked."""

    def __init__(self, *, delays_ms: list[int] | None = None, refuse_ms: int = 0) -> None:
        self._delays_ms = delays_ms or []
        self._refuse_ms = refuse_ms
        self.asked_s: list[float] = []

    def delay_ms(self, listener: str) -> int:
        self.asked_s.append(asyncio.get_running_loop().time())
        return self._delays_ms.pop(0) if self._delays_ms else 0

    def refuse_ms(self, listener: str, address: str) -> int:
        assert address == "127.0.0.1"
        return self._refuse_ms


def test_connections_that_come_too_fast_wait_and_so_do_those_behind_them() -> None:
    async def test() -> None:
        async with serving(echo) as (connections, listening):
            quota = connections.creation_quota = ScriptedQuota(delays_ms=[0, 100, 50])
            clients = [await connect(listening) for _ in range(4)]
            for number, (_, writer) in enumerate(clients):
                writer.write(frame(b"%d" % number))
            for number, (reader, _) in enumerate(clients):
                assert await read_frame(reader) == b"%d" % number
            asked_s = quota.asked_s
            assert len(asked_s) == 4
            # A timer is never early, but for the resolution of its clock.
            assert asked_s[2] - asked_s[1] > 0.099
            assert asked_s[3] - asked_s[2] > 0.049
            await closing(*(writer for _, writer in clients))

    run(test)


def test_at_the_end_nobody_is_left_waiting() -> None:
    async def test() -> None:
        async with serving(echo) as (connections, listening):
            quota = connections.creation_quota = ScriptedQuota(delays_ms=[NEVER_MS])
            reader, writer = await connect(listening)
            await wait_until_async(lambda: len(quota.asked_s) == 1)
            connections.close()
            assert await reader.read() == b""
            assert connections.accepted == 0
            await closing(writer)

    run(test)


def test_who_waited_is_not_let_in_above_the_number_of_connections() -> None:
    async def test() -> None:
        limits = listener.ConnectionLimits(max_connections=1)
        async with serving(echo, limits) as (connections, listening):
            second = connections.bind("127.0.0.1", 0)
            second.open(echo)
            quota = connections.creation_quota = ScriptedQuota(delays_ms=[50])
            waiting_reader, waiting = await connect(listening)
            await wait_until_async(lambda: len(quota.asked_s) == 1)
            reader, writer = await connect(second)
            writer.write(frame(b"first"))
            assert await read_frame(reader) == b"first"
            waiting.write(frame(b"second"))
            await wait_until_async(lambda: listening._pause is None)
            assert connections.accepted == 1
            await closing(writer)
            assert await read_frame(waiting_reader) == b"second"
            await closing(waiting)

    run(test)


def test_a_listener_that_is_full_leaves_the_others_alone() -> None:
    async def test() -> None:
        async with serving(echo) as (connections, _):
            small = connections.bind("127.0.0.1", 0, "SMALL")
            large = connections.bind("127.0.0.1", 0, "LARGE")
            small.open(echo)
            large.open(echo)
            connections.change_limits(listener.ConnectionLimits(max_connections_by_listener={"SMALL": 1}))
            _, first = await connect(small)
            await wait_until_async(lambda: connections.accepted == 1)
            waiting_reader, waiting = await connect(small)
            reader, writer = await connect(large)
            for each, text in ((waiting, b"late"), (writer, b"soon")):
                each.write(frame(text))
            assert await read_frame(reader) == b"soon"
            assert (connections.accepted, small.open_connections, large.open_connections) == (2, 1, 1)
            await closing(first)
            assert await read_frame(waiting_reader) == b"late"
            await closing(waiting, writer)

    run(test)


def test_an_address_above_its_quota_is_left_alone_and_closed() -> None:
    async def test() -> None:
        async with serving(echo) as (connections, listening):
            connections.creation_quota = ScriptedQuota(refuse_ms=100)
            started_s = asyncio.get_running_loop().time()
            reader, writer = await connect(listening)
            assert await reader.read() == b""
            assert asyncio.get_running_loop().time() - started_s > 0.099
            assert (connections.accepted, connections.refused) == (0, 1)
            await closing(writer)

    run(test)


def test_those_that_are_left_alone_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "MAX_THROTTLED", 2)

    async def test() -> None:
        async with serving(echo) as (connections, listening):
            connections.creation_quota = ScriptedQuota(refuse_ms=NEVER_MS)
            clients = [await connect(listening) for _ in range(3)]
            assert await clients[2][0].read() == b"", "there is no room to wait"
            connections.close()
            for reader, _ in clients:
                assert await reader.read() == b""
            await closing(*(writer for _, writer in clients))

    run(test)


@pytest.mark.slow
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_broker_keeps_to_both(tmp_path: Path, host: str) -> None:
    clock = ManualClock()
    with RunningBroker(tmp_path, {"max.connection.creation.rate": "1000"}, clock=clock) as running:
        writer = running.server.broker.writer
        limits = {CONNECTION_CREATION_RATE: 1.0}
        running.call(lambda: writer.alter_quotas({(None, None, host): lambda _: limits}))
        books = running.server.broker.quotas
        wait_until(lambda: books.limit_of_ip(CONNECTION_CREATION_RATE, "127.0.0.1") is not None)
        # Ten in ten seconds are allowed, and the broker itself may have tried whether it can be reached.
        clients = [running.client() for _ in range(9)]
        for client in clients:
            assert client.ask("Metadata", 12, MetadataRequest(topics=[])).controller_id >= 0
        with running.client(), running.client() as refused:
            assert refused.is_closed_by_broker()
        clock.advance_ms(60_000)
        clients.append(running.client())
        assert clients[-1].ask("Metadata", 12, MetadataRequest(topics=[])).controller_id >= 0
        for client in clients:
            client.close()
