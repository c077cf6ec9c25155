"""The admin client itself: for asyncio, closed, without a broker."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest

import barnabas
import barnabas.aio
from barnabas.config.definition import UnknownSetting
from barnabas.errors import InvalidConfig, InvalidRequest, RequestTimedOut
from barnabas.testing import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running
        assert "Traceback" not in running.log()


def test_for_asyncio(broker: Broker) -> None:
    async def run() -> None:
        async with barnabas.aio.Admin(bootstrap_servers=broker.bootstrap) as admin:
            await asyncio.gather(admin.create_topics("async-1"), admin.create_topics("async-2"))
            described = await admin.describe_topics(["async-1", "async-2"])
            assert len(described) == 2

    asyncio.run(run())


def test_settings_are_checked_where_they_are_given() -> None:
    with pytest.raises(UnknownSetting, match=r"did you mean request\.timeout\.ms"):
        barnabas.Admin(bootstrap_servers="localhost:1", request_timeout=3)
    with pytest.raises(InvalidConfig, match=r"bootstrap\.servers is missing"):
        barnabas.Admin()


def test_a_closed_client_says_so(broker: Broker) -> None:
    admin = broker.admin()
    admin.close()
    admin.close()
    with pytest.raises(InvalidRequest, match="closed"):
        admin.list_topics()


def test_a_broker_that_is_not_there_ends_in_time() -> None:
    with socket.socket() as reserved:
        # Bound and not listening: nobody else can answer there.
        reserved.bind(("127.0.0.1", 0))
        with (
            barnabas.Admin(bootstrap_servers=f"127.0.0.1:{reserved.getsockname()[1]}") as admin,
            pytest.raises(RequestTimedOut, match="no broker can be reached"),
        ):
            admin.list_topics(timeout_ms=300)


@pytest.mark.slow
def test_a_broker_that_comes_back_is_found_again() -> None:
    with Broker() as broker, broker.admin() as admin:
        admin.create_topics("lasting")
        broker.stop()
        with pytest.raises(RequestTimedOut):
            admin.describe_topics("lasting", timeout_ms=200)
        broker.start()
        assert list(admin.describe_topics("lasting")) == ["lasting"]
