"""The admin client over connections that are cut, delayed and frozen, and brokers that are not what they were."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

import barnabas
from barnabas.client.admin.errors import AdminErrors
from barnabas.client.admin.results import ConfigResource, ResourceType
from barnabas.errors import RequestTimedOut, TopicAlreadyExists
from barnabas.model import TopicPartition
from barnabas.testing import Broker
from tests.client.proxy import Plan, Proxy, seeded
from tests.sampling import seeds

QUICK = {
    "retry_backoff_ms": 5,
    "retry_backoff_max_ms": 20,
    "reconnect_backoff_ms": 5,
    "reconnect_backoff_max_ms": 20,
}


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with Proxy() as running:
        yield running


@pytest.fixture
def broker(proxy: Proxy) -> Iterator[Broker]:
    """A broker that tells its clients to come through the proxy."""
    with Broker(advertised_listeners=f"PLAINTEXT://{proxy.address}") as running:
        proxy.target_port = running.port
        yield running


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(3, fast=1))
def test_connections_cut_at_any_byte(broker: Broker, proxy: Proxy, seed: int) -> None:
    proxy.planner = seeded(seed, longest=3_000)
    topic = ConfigResource(ResourceType.TOPIC, "cut")
    partition = TopicPartition("cut", 0)
    with barnabas.Admin(bootstrap_servers=proxy.address, **QUICK) as admin:
        # The answer may be lost, and the topic be there all the same.
        with contextlib.suppress(TopicAlreadyExists):
            admin.create_topics({"cut": 2})
        for number in range(10):
            assert [each.name for each in admin.list_topics()] == ["cut"]
            assert len(admin.describe_topics("cut")["cut"].partitions) == 2
            assert admin.list_offsets([partition])[partition].offset == 0
            admin.alter_configs({topic: {"retention.ms": str(number)}})
            assert admin.describe_configs(topic)[topic]["retention.ms"].value == str(number)
            admin.alter_group_offsets("group", {partition: 0})
            assert admin.list_group_offsets("group").keys() == {partition}
            assert admin.describe_groups("group")["group"].state == "Empty"
    assert proxy.cuts > 0


@pytest.mark.slow
def test_every_byte_of_an_answer(broker: Broker, proxy: Proxy) -> None:
    with broker.admin() as admin:
        admin.create_topics("bytes")
    proxy.planner = lambda number: Plan(cut_responses_after=1 + 5 * number) if number < 100 else Plan()
    with barnabas.Admin(bootstrap_servers=proxy.address, **QUICK) as admin:
        for _ in range(5):
            assert list(admin.describe_topics("bytes")) == ["bytes"]
            proxy.cut_all()
    assert proxy.cuts > 10


@pytest.mark.slow
def test_a_broker_that_freezes(broker: Broker, proxy: Proxy) -> None:
    with barnabas.Admin(bootstrap_servers=proxy.address, request_timeout_ms=200, **QUICK) as admin:
        admin.create_topics("frozen")
        proxy.hold()
        with pytest.raises(RequestTimedOut, match="describing topics was not done within 500 ms"):
            admin.describe_topics("frozen", timeout_ms=500)
        with pytest.raises(AdminErrors) as caught:
            admin.describe_topics(["frozen", "other"], timeout_ms=300)
        assert all(isinstance(error, RequestTimedOut) for error in caught.value.errors.values())
        proxy.release()
        assert list(admin.describe_topics("frozen")) == ["frozen"]


@pytest.mark.slow
def test_a_coordinator_that_restarts() -> None:
    """What is known of coordinators, leaders and the controller is asked for again."""
    with Broker(topics=["kept"]) as broker, broker.admin(**QUICK) as admin:
        partition = TopicPartition("kept", 0)
        for number in range(2):
            admin.alter_group_offsets("group", {partition: 0})
            assert admin.list_group_offsets("group").keys() == {partition}
            admin.create_topics(f"topic-{number}")
            admin.fence_producers("ledger")
            broker.restart()
        assert admin.describe_groups("group")["group"].state == "Empty"
        assert admin.describe_transactions("ledger")["ledger"].state == "Empty"
