"""How fast connections may be made: what the quota says, and what a listener makes of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from barnabas.broker import quotas
from barnabas.broker.quota_connections import ConnectionQuota
from barnabas.broker.quotas import CONNECTION_CREATION_RATE, DEFAULT, QuotaEntity, Quotas
from barnabas.clock import ManualClock
from barnabas.net import listener
from barnabas.protocol.messages.metadata_request import MetadataRequest
from tests.broker.running import RunningBroker
from tests.net.test_connection import closing, connect, echo, frame, read_frame, run, serving, until

NEVER_MS = 3_600_000


def test_the_broker_in_all() -> None:
    clock = ManualClock()
    rate = 2
    quota = ConnectionQuota(Quotas(), clock, lambda: rate)
    # Ten seconds are what a rate is measured over.
    assert [quota.delay_ms() for _ in range(20)] == [0] * 20
    assert quota.delay_ms() == 500
    assert quota.delay_ms() == 1_000
    assert quota.delay_ms() == 1_000, "never longer than a window at a time"
    rate = 1_000
    assert quota.delay_ms() == 0
    rate = 0
    assert quota.delay_ms() == 1_000
    rate = 2
    clock.advance_ms(60_000)
    assert quota.delay_ms() == 0


def test_each_address_for_itself() -> None:
    books = Quotas()
    clock = ManualClock()
    quota = ConnectionQuota(books, clock, lambda: 1)
    assert [quota.refuse_ms("10.0.0.1") for _ in range(1_000)] == [0] * 1_000
    books.set_limits(QuotaEntity(ip=DEFAULT), {CONNECTION_CREATION_RATE: 1.0})
    books.set_limits(QuotaEntity(ip="10.0.0.9"), {CONNECTION_CREATION_RATE: 2.0})
    for address, allowed in (("10.0.0.1", 10), ("10.0.0.2", 10), ("10.0.0.9", 20)):
        assert [quota.refuse_ms(address) for _ in range(allowed)] == [0] * allowed
        # What is refused is not counted: the next one has to wait no longer.
        assert [quota.refuse_ms(address) for _ in range(3)] == [1_000 if allowed == 10 else 500] * 3
    # It does not count for the broker in all either.
    for _ in range(10):
        assert quota.delay_ms() == 0
        assert quota.refuse_ms("10.0.0.1") > 0
    clock.advance_ms(60_000)
    assert quota.refuse_ms("10.0.0.1") == 0
    books.set_limits(QuotaEntity(ip="10.0.0.1"), {CONNECTION_CREATION_RATE: 0.0})
    assert quota.refuse_ms("10.0.0.1") == 1_000


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


def test_the_quota_of_a_name_has_no_effect_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    books = Quotas()
    books.set_limits(QuotaEntity(ip="localhost"), {CONNECTION_CREATION_RATE: 3.0})
    assert books.limit_of_ip(CONNECTION_CREATION_RATE, "127.0.0.1") is None
    assert "the quota of localhost has no effect" in caplog.text


def test_addresses_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas, "MAX_RATES", 10)
    books = Quotas()
    books.set_limits(QuotaEntity(ip=DEFAULT), {CONNECTION_CREATION_RATE: 1.0})
    quota = ConnectionQuota(books, ManualClock(), lambda: 1)
    for number in range(100):
        quota.refuse_ms(f"10.0.0.{number}")
    assert len(quota._rates_by_address) == 10


class ScriptedQuota:
    """Says what it is told to, and remembers when it was asked."""

    def __init__(self, *, delays_ms: list[int] | None = None, refuse_ms: int = 0) -> None:
        self._delays_ms = delays_ms or []
        self._refuse_ms = refuse_ms
        self.asked_s: list[float] = []

    def delay_ms(self) -> int:
        self.asked_s.append(asyncio.get_running_loop().time())
        return self._delays_ms.pop(0) if self._delays_ms else 0

    def refuse_ms(self, address: str) -> int:
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
            await until(lambda: len(quota.asked_s) == 1)
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
            await until(lambda: len(quota.asked_s) == 1)
            reader, writer = await connect(second)
            writer.write(frame(b"first"))
            assert await read_frame(reader) == b"first"
            waiting.write(frame(b"second"))
            await until(lambda: listening._pause is None)
            assert connections.accepted == 1
            await closing(writer)
            assert await read_frame(waiting_reader) == b"second"
            await closing(waiting)

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


def test_a_broker_keeps_to_both(tmp_path: Path) -> None:
    clock = ManualClock()
    with RunningBroker(tmp_path, {"max.connection.creation.rate": "1000"}, clock=clock) as running:
        controller = running.server.broker.controller
        limits = {CONNECTION_CREATION_RATE: 1.0}
        running.call(lambda: controller.alter_quotas({(None, None, "127.0.0.1"): lambda _: limits}))
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
