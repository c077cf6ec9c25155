"""Settings that another broker changes: notices are followed, and old ones removed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from barnabas.coordination.metadata import following
from barnabas.coordination.metadata.notices import NOTICE_EXPIRATION_MS
from barnabas.coordination.metadata.scram_credentials import new_credential
from barnabas.coordination.store.contract import CreateMode, StoreUnavailable
from barnabas.coordination.store.embedded import EmbeddedSession
from barnabas.model import BrokerId
from tests.coordination.controllers import BrokerNode, Cluster, run
from tests.waiting import wait_until_async

CREDENTIAL = new_credential("SCRAM-SHA-256", b"salt", b"password", 4096)


def to(values: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    return lambda current: values


async def same_settings(first: BrokerNode, second: BrokerNode) -> None:
    def settings(node: BrokerNode) -> tuple[object, ...]:
        image = node.image
        return (
            image.topic_configs,
            image.broker_configs,
            image.group_configs,
            image.client_metrics,
            image.client_quotas,
            image.scram_credentials,
        )

    await wait_until_async(lambda: settings(first) == settings(second))


def test_each_broker_follows_what_another_changes(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        second = await cluster.start_broker(await cluster.store.connect(), broker_id=BrokerId(1))
        await cluster.create("orders")
        for value in ("1", "2"):
            await second.writer.alter_topic_configs({"orders": to({"retention.ms": value})})
            await second.writer.alter_broker_configs({"": to({"x": value}), "0": to({"y": value})})
            await second.writer.alter_group_configs({"g/1": to({"consumer.session.timeout.ms": value})})
            await second.writer.alter_client_metrics({"m": to({"interval.ms": value})})
            await second.writer.alter_quotas(
                {
                    ("ann", None, None): to({"consumer_byte_rate": float(value)}),
                    ("ann", "app", None): to({"producer_byte_rate": float(value)}),
                    (None, None, "10.0.0.1"): to({"connection_creation_rate": 1.0}),
                }
            )
            await second.writer.alter_scram_credentials({"ann": to({"SCRAM-SHA-256": CREDENTIAL})})
            await same_settings(cluster.node, second)
            assert second.image.topic_config("orders") == {"retention.ms": value}
            assert cluster.image.group_configs == {"g/1": {"consumer.session.timeout.ms": value}}
            assert cluster.image.client_metrics == {"m": {"interval.ms": value}}
        await second.writer.alter_quotas({("ann", None, None): to({})})
        await second.writer.alter_scram_credentials({"ann": to({})})
        await second.writer.alter_topic_configs({"orders": to({})})
        await same_settings(cluster.node, second)
        assert ("ann", None, None) not in cluster.image.client_quotas
        assert (cluster.image.topic_configs, cluster.image.scram_credentials) == ({}, {})
        await second.controller.close()

    run(scenario, tmp_path)


def test_a_notice_is_handled_when_the_store_works_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(following, "RETRY_S", 0.01)
    failures: list[Sequence[str]] = []

    async def scenario(cluster: Cluster) -> None:
        second = await cluster.start_broker(await cluster.store.connect(), broker_id=BrokerId(1))
        get_all = EmbeddedSession.get_all

        async def fail_twice(session: EmbeddedSession, paths: Sequence[str], *watcher: Any) -> Any:
            if session is cluster.session and len(failures) < 2 and "/config/brokers/0" in paths:
                failures.append(paths)
                raise StoreUnavailable("gone for a moment")
            return await get_all(session, paths, *watcher)

        monkeypatch.setattr(EmbeddedSession, "get_all", fail_twice)
        await second.writer.alter_broker_configs({"0": to({"x": "1"})})
        await same_settings(cluster.node, second)
        assert cluster.image.broker_config("0") == {"x": "1"}
        await second.controller.close()

    run(scenario, tmp_path)
    assert len(failures) == 2
    assert "Changes below /config/changes cannot be followed, which is tried again" in caplog.text


def test_own_changes_are_published_once(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.create("orders")
        published = cluster.node.cache.published
        await cluster.writer.alter_topic_configs({"orders": to({"retention.ms": "1"})})
        await cluster.node.follower.close()
        assert cluster.node.cache.published == published + 1

    run(scenario, tmp_path)


def test_notices_of_the_time_before_the_start_are_not_read_again_and_expire(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.writer.alter_broker_configs({"0": to({"x": "1"})})
        assert len(await cluster.tree("/config/changes")) == 1
        await cluster.restart()
        assert cluster.node.cache.image.broker_config("0") == {"x": "1"}
        assert len(await cluster.tree("/config/changes")) == 1
        cluster.clock.advance_ms(NOTICE_EXPIRATION_MS + 1)
        await cluster.restart()
        assert await cluster.tree("/config/changes") == {}

    run(scenario, tmp_path)


def test_a_notice_that_makes_no_sense_is_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(cluster: Cluster) -> None:
        second = await cluster.start_broker(await cluster.store.connect(), broker_id=BrokerId(1))
        prefix, mode = "/config/changes/config_change_", CreateMode.PERSISTENT_SEQUENTIAL
        await second.session.create(prefix, b"no json", mode=mode)
        for entity in (
            "rooms/1",
            "topics",
            "topics/",
            "topics//x",
            "topics/..",
            "users/a/b",
            "users/a/clients",
        ):
            notice = json.dumps({"version": 2, "entity_path": entity}).encode()
            await second.session.create(prefix, notice, mode=mode)
        # A number that the store does not give: it would be the last for ever.
        await second.session.create(f"{prefix}99999999999", b"{}")
        await second.writer.alter_broker_configs({"0": to({"x": "1"})})
        await same_settings(cluster.node, second)
        assert cluster.image.broker_config("0") == {"x": "1"}
        await second.controller.close()

    run(scenario, tmp_path)
    assert "A notice of changed settings is ignored" in caplog.text


BAD_SETTINGS = [
    ("/config/users/bob", b"{"),
    ("/config/users/bob", b'{"config":{"request_percentage":"much"}}'),
    ("/config/clients/app", b"[]"),
    ("/config/ips/10.0.0.1", b"{"),
    ("/config/brokers/0", b'{"config":5}'),
    ("/config/brokers/abc", b"{"),
    ("/config/groups/g", b"{"),
    ("/config/topics/payments", b"{"),
]


@pytest.mark.parametrize(("path", "data"), BAD_SETTINGS)
def test_settings_that_cannot_be_read_cost_no_others(
    tmp_path: Path, path: str, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.create("orders", configs={"retention.ms": "1"})
        await cluster.create("payments")
        await cluster.writer.alter_quotas({("ann", None, None): to({"consumer_byte_rate": 1.0})})
        if await cluster.session.exists(path) is None:
            await cluster.session.create(path)
        await cluster.session.set(path, data)
        # In a new session, and at the next start.
        await cluster.node.follower.read_again()
        for _ in range(2):
            assert cluster.image.topic_config("orders") == {"retention.ms": "1"}
            assert cluster.image.client_quotas == {("ann", None, None): {"consumer_byte_rate": 1.0}}
            is_held = path == "/config/topics/payments"
            held = {"barnabas.deletion.hold": "true"} if is_held else {}
            assert cluster.image.topic_config("payments") == held
            await cluster.restart()

    run(scenario, tmp_path, zookeeper_connect="model")
    assert f"Settings are not followed: {path}: " in caplog.text


def test_settings_that_can_no_longer_be_read_stay(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.create("orders", configs={"retention.ms": "1"})
        await cluster.writer.alter_broker_configs({"0": to({"x": "1"}), "": to({"y": "1"})})
        await cluster.session.set("/config/topics/orders", b"{")
        # Gone without a notice.
        await cluster.session.delete("/config/brokers/0")
        await cluster.node.follower.read_again()
        assert cluster.image.topic_config("orders") == {"retention.ms": "1"}
        assert cluster.image.broker_configs == {"": {"y": "1"}}

    run(scenario, tmp_path, zookeeper_connect="model")
