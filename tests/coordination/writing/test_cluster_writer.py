"""Settings, quotas, credentials and producer ids as any broker writes them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from barnabas.coordination.metadata.image import QuotaEntity
from barnabas.coordination.store.contract import Operation, OperationResult
from barnabas.coordination.store.embedded import EmbeddedSession
from barnabas.coordination.writing import cluster_writer
from barnabas.coordination.writing.cluster_writer import Edit
from barnabas.errors import InvalidConfig, LeaderNotAvailable, UnknownServerError, UnknownTopicOrPartition
from barnabas.model import ProducerId
from tests.coordination.controllers import Cluster, run


def to(**settings: str) -> Edit[str]:
    return lambda current: settings


def refuse(current: Mapping[str, str]) -> Mapping[str, str]:
    raise InvalidConfig("no")


def test_topic_settings_are_replaced_by_what_an_edit_makes_of_them(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        topic = await cluster.create("orders", configs={"retention.ms": "1"})

        def add(current: Mapping[str, str]) -> Mapping[str, str]:
            assert current == {"retention.ms": "1"}
            return {**current, "segment.ms": "2"}

        results = await cluster.writer.alter_topic_configs(
            {"orders": add, "no.such": to(), "orders2": refuse}
        )
        assert results["orders"] is None
        assert isinstance(results["no.such"], UnknownTopicOrPartition)
        image = cluster.image
        assert image.topic_config("orders") == {"retention.ms": "1", "segment.ms": "2"}
        # Nothing but the settings has changed.
        assert image.topics == {"orders": topic}
        assert image.topics is cluster.images[-1][0].topics
        assert await cluster.tree("/config/topics") == {
            "/config/topics/orders": b'{"version":1,"config":{"retention.ms":"1","segment.ms":"2"}}'
        }
        assert (await cluster.restart()).image.topic_configs == image.topic_configs
        await cluster.writer.alter_topic_configs({"orders": to()})
        assert cluster.image.topic_configs == {}
        assert (await cluster.restart()).image.topic_configs == {}

    run(scenario, tmp_path)


def test_an_edit_that_is_refused_or_only_checked_changes_nothing(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.create("orders")
        before, tree = cluster.image, await cluster.tree()
        refused = await cluster.writer.alter_topic_configs({"orders": refuse})
        assert isinstance(refused["orders"], InvalidConfig)
        checked = await cluster.writer.alter_topic_configs({"orders": to(a="1")}, validate_only=True)
        assert checked == {"orders": None}
        assert cluster.image is before
        assert await cluster.tree() == tree

    run(scenario, tmp_path)


def test_edits_at_once_do_not_lose_each_other(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.create("orders")

        def adding(name: str) -> Edit[str]:
            return lambda current: {**current, name: "1"}

        await asyncio.gather(
            *(cluster.writer.alter_topic_configs({"orders": adding(f"s{index}")}) for index in range(20))
        )
        assert len(cluster.image.topic_config("orders")) == 20

    run(scenario, tmp_path)


def test_a_write_that_comes_second_edits_what_the_first_has_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.create("orders")
        node = b'{"version":1,"config":{"segment.ms":"7"}}'
        runs: list[Mapping[str, str]] = []
        other = await cluster.store.connect()
        multi = EmbeddedSession.multi

        async def multi_after_another(
            session: EmbeddedSession, operations: Sequence[Operation]
        ) -> list[OperationResult]:
            if session is not other and len(runs) == 1:
                await other.set("/config/topics/orders", node)
            return await multi(session, operations)

        def add(current: Mapping[str, str]) -> Mapping[str, str]:
            runs.append(current)
            return {**current, "retention.ms": "1"}

        monkeypatch.setattr(EmbeddedSession, "multi", multi_after_another)
        assert await cluster.writer.alter_topic_configs({"orders": add}) == {"orders": None}
        assert runs == [{}, {"segment.ms": "7"}]
        assert cluster.image.topic_config("orders") == {"segment.ms": "7", "retention.ms": "1"}

    run(scenario, tmp_path)


def test_a_write_leaves_a_notice_where_brokers_look_that_know_the_kind(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.create("orders")
        writer = cluster.writer
        await writer.alter_topic_configs({"orders": to(a="1")})
        await writer.alter_broker_configs({"": to(a="1")})
        await writer.alter_quotas({("ann", "app/1", None): limits({"consumer_byte_rate": 1.0})})
        await writer.alter_group_configs({"g": to(a="1")})
        await writer.alter_client_metrics({"m": to(a="1")})
        await writer.alter_topic_configs({"orders": to(a="2")}, validate_only=True)
        notices = [json.loads(node) for node in (await cluster.tree("/config/changes")).values()]
        assert notices == [
            {"version": 2, "entity_path": path}
            for path in ("topics/orders", "brokers/<default>", "users/ann/clients/app%2F1")
        ]
        # A broker of Kafka 3.9 would fail at these, and would follow no notice after them.
        own = [json.loads(node) for node in (await cluster.tree("/barnabas/config_changes")).values()]
        assert [each["entity_path"] for each in own] == ["groups/g", "client-metrics/m"]

    run(scenario, tmp_path)


def test_nothing_is_kept_of_topics_that_the_controller_does_not_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_writer, "CREATION_WAIT_S", 0.05)

    async def scenario(cluster: Cluster) -> None:
        await cluster.controller.close()
        failed = await cluster.writer.create_topics(["a", "b"])
        assert {name: type(error) for name, error in failed.items()} == dict.fromkeys(
            "ab", LeaderNotAvailable
        )
        assert not cluster.writer._waiting

    run(scenario, tmp_path)


def test_broker_settings_have_a_default_for_all_brokers(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        results = await cluster.writer.alter_broker_configs(
            {"": to(**{"log.retention.ms": "5"}), "0": to(**{"log.retention.ms": "6"})}
        )
        assert results == {"": None, "0": None}
        image = cluster.image
        assert image.broker_configs == {"": {"log.retention.ms": "5"}, "0": {"log.retention.ms": "6"}}
        assert sorted(await cluster.tree("/config/brokers")) == [
            "/config/brokers/0",
            "/config/brokers/<default>",
        ]
        assert (await cluster.restart()).image.broker_configs == image.broker_configs
        await cluster.writer.alter_broker_configs({"": to()})
        assert (await cluster.restart()).image.broker_configs == {"0": {"log.retention.ms": "6"}}

    run(scenario, tmp_path)


QUOTAS: dict[QuotaEntity, tuple[str, dict[str, float]]] = {
    ("ann", None, None): ("/config/users/ann", {"producer_byte_rate": 1024.0}),
    ("<default>", None, None): ("/config/users/<default>", {"consumer_byte_rate": 1.5}),
    ("ann", "app/1", None): ("/config/users/ann/clients/app%2F1", {"request_percentage": 200.0}),
    ("bob b", "<default>", None): (
        "/config/users/bob%20b/clients/<default>",
        {"controller_mutation_rate": 1e20, "producer_byte_rate": 1.0},
    ),
    (None, "app", None): ("/config/clients/app", {"producer_byte_rate": 7.0}),
    (None, None, "10.0.0.1"): ("/config/ips/10.0.0.1", {"connection_creation_rate": 10.0}),
}


def limits(values: Mapping[str, float]) -> Edit[float]:
    return lambda current: values


def test_quotas_stand_where_kafka_has_them(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        results = await cluster.writer.alter_quotas(
            {entity: limits(each) for entity, (_, each) in QUOTAS.items()}
        )
        assert results == dict.fromkeys(QUOTAS)
        expected = {entity: each for entity, (_, each) in QUOTAS.items()}
        assert cluster.image.client_quotas == expected
        tree = await cluster.tree("/config")
        for path, each in QUOTAS.values():
            config = json.loads(tree[path])["config"]
            assert {key: float(text) for key, text in config.items()} == each
        assert json.loads(tree["/config/users/ann"])["config"] == {"producer_byte_rate": "1024.0"}
        assert (await cluster.restart()).image.client_quotas == expected
        gone: QuotaEntity = ("ann", "app/1", None)
        await cluster.writer.alter_quotas({gone: limits({})})
        del expected[gone]
        assert cluster.image.client_quotas == expected
        assert (await cluster.restart()).image.client_quotas == expected

    run(scenario, tmp_path)


def test_what_the_store_has_refused_stands_in_nobodys_way(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        ann, bob = ("ann", None, None), ("bob", None, None)
        # A node's path has a greatest length.
        endless = ("ann", "c" * 5_000, None)
        results = await cluster.writer.alter_quotas(
            {endless: limits({"consumer_byte_rate": 1.0}), bob: limits({"consumer_byte_rate": 1.0})}
        )
        assert isinstance(results[endless], UnknownServerError)
        assert "a path has at most" in str(results[endless])
        assert results[bob] is None
        assert cluster.image.client_quotas == {bob: {"consumer_byte_rate": 1.0}}
        quotas = {each: {"consumer_byte_rate": 2.0} for each in (ann, bob, ("ann", "client", None))}
        results = await cluster.writer.alter_quotas({each: limits(values) for each, values in quotas.items()})
        assert set(results.values()) == {None}
        assert (await cluster.restart()).image.client_quotas == quotas

    run(scenario, tmp_path)


def test_the_credentials_of_a_user_stay_beside_its_quotas(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        node = b'{"version":1,"config":{"SCRAM-SHA-256":"salt","producer_byte_rate":"1"}}'
        await cluster.session.create("/config/users/ann", node)
        await cluster.restart()
        ann: QuotaEntity = ("ann", None, None)
        assert cluster.image.client_quotas == {ann: {"producer_byte_rate": 1.0}}
        await cluster.writer.alter_quotas({ann: limits({"consumer_byte_rate": 2.0})})
        stored = json.loads((await cluster.tree("/config/users"))["/config/users/ann"])
        assert stored["config"] == {"SCRAM-SHA-256": "salt", "consumer_byte_rate": "2.0"}

    run(scenario, tmp_path)


def test_producer_ids_are_never_given_twice(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        blocks = await asyncio.gather(*(cluster.blocks.allocate() for _ in range(3)))
        assert blocks == [range(1000), range(1000, 2000), range(2000, 3000)]
        assert (await cluster.tree())["/latest_producer_id_block"] == (
            b'{"version":1,"broker":0,"block_start":"2000","block_end":"2999"}'
        )
        await cluster.restart(clean_stop=False)
        assert await cluster.blocks.allocate() == range(3000, 4000)

    run(scenario, tmp_path)


def test_producer_ids_that_logs_hold_are_not_given_again(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.blocks.raise_to(ProducerId(70_001))
        cluster.blocks.raise_to(ProducerId(5))
        assert await cluster.blocks.allocate() == range(70_001, 71_001)
        assert await cluster.blocks.allocate() == range(71_001, 72_001)
        cluster.blocks.raise_to(ProducerId((1 << 63) - 1_000))
        assert (await cluster.blocks.allocate())[-1] == (1 << 63) - 1
        with pytest.raises(UnknownServerError, match="no block is left"):
            await cluster.blocks.allocate()

    run(scenario, tmp_path)
