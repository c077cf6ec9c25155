"""Topics as the controller creates, extends and deletes them, on the real embedded store."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from barnabas.coordination.metadata.image import TopicImage
from barnabas.coordination.metadata.tree import encode_uuid
from barnabas.coordination.planning.topic_creation import NewPartitions, NewTopic, PlannedTopic
from barnabas.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopicException,
    KafkaError,
    KafkaStorageError,
    LeaderNotAvailable,
    NotController,
    PolicyViolation,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from barnabas.protocol.messages.stop_replica_request import StopReplicaRequest
from barnabas.protocol.messages.stop_replica_response import StopReplicaResponse
from tests.coordination.controllers import Cluster, run, stopped


def test_a_topic_is_stored_as_kafka_stores_it(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        topic = await cluster.create("orders", 2, configs={"retention.ms": "1000"})
        state = b'{"controller_epoch":1,"leader":0,"version":1,"leader_epoch":0,"isr":[0]}'
        node = {
            "removing_replicas": {},
            "partitions": {"0": [0], "1": [0]},
            "topic_id": encode_uuid(topic.id),
            "adding_replicas": {},
            "version": 3,
        }
        tree = await cluster.tree("/brokers/topics")
        assert json.loads(tree.pop("/brokers/topics/orders")) == node
        assert tree == {
            "/brokers/topics/orders/partitions": b"",
            "/brokers/topics/orders/partitions/0": b"",
            "/brokers/topics/orders/partitions/0/state": state,
            "/brokers/topics/orders/partitions/1": b"",
            "/brokers/topics/orders/partitions/1/state": state,
        }
        assert await cluster.tree("/config/topics") == {
            "/config/topics/orders": b'{"version":1,"config":{"retention.ms":"1000"}}'
        }

    run(scenario, tmp_path)


def test_a_created_topic_is_in_the_next_image_and_after_a_restart(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        before = cluster.image
        topic = await cluster.create("orders", 3, configs={"cleanup.policy": "compact"})
        image = cluster.image
        # The settings are there before the topic is, and with it the log.
        assert [(list(each.topics), dict(each.topic_configs)) for _, each in cluster.images] == [
            ([], {"orders": {"cleanup.policy": "compact"}}),
            (["orders"], {"orders": {"cleanup.policy": "compact"}}),
        ]
        assert before.topics == {}
        assert image.topics == {"orders": topic}
        assert image.topic_by_id(topic.id) == topic
        assert image.topic_config("orders") == {"cleanup.policy": "compact"}
        for partition in topic.partitions:
            assert (partition.leader, partition.leader_epoch) == (0, 0)
            assert partition.replicas == partition.isr == (0,)
        again = (await cluster.restart()).image
        assert again.topics == image.topics
        assert again.topic_names == image.topic_names
        assert again.topic_configs == image.topic_configs

    run(scenario, tmp_path)


def test_counts_that_are_left_open_come_from_the_configuration(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        topic = await cluster.create("orders", -1)
        assert len(topic.partitions) == 4

    run(scenario, tmp_path, num_partitions="4")


def test_a_default_replication_factor_that_cannot_be_is_told(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        (error,) = await cluster.controller.create_topics([NewTopic(name="orders")])
        assert isinstance(error, InvalidReplicationFactor)
        assert str(error) == (
            "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached"
            " because only 1 broker(s) are registered."
        )

    run(scenario, tmp_path, default_replication_factor="3")


REFUSED: list[tuple[NewTopic, type[KafkaError], str]] = [
    (NewTopic("there"), TopicAlreadyExists, "Topic 'there' already exists."),
    (
        NewTopic("the.re_is"),
        InvalidTopicException,
        "Topic 'the.re_is' collides with existing topic: the_re.is",
    ),
    (NewTopic(""), InvalidTopicException, "Topic name is invalid: the empty string is not allowed"),
    (NewTopic(".."), InvalidTopicException, "Topic name is invalid: '..' is not allowed"),
    (NewTopic("a" * 250), InvalidTopicException, "is longer than the max allowed length 249"),
    (NewTopic("a b"), InvalidTopicException, "Topic name is invalid: 'a b' contains one or more characters"),
    (
        NewTopic("__cluster_metadata"),
        InvalidRequest,
        "Creation of internal topic __cluster_metadata is prohibited.",
    ),
    (NewTopic("t", 0), InvalidPartitions, "Number of partitions was set to an invalid non-positive value."),
    (NewTopic("t", -2), InvalidPartitions, "Number of partitions was set to an invalid non-positive value."),
    (NewTopic("t", 10_001), PolicyViolation, "Excessively large number of partitions per request."),
    (
        NewTopic("t", 1, 0),
        InvalidReplicationFactor,
        "Replication factor must be larger than 0, or -1 to use the default value.",
    ),
    (
        NewTopic("t", 1, 2),
        InvalidReplicationFactor,
        "Unable to replicate the partition 2 time(s): The target replication factor of 2 cannot be reached",
    ),
    (
        NewTopic("t", configs={"retention.ms": None, "segment.ms": "1", "segment.bytes": None}),
        InvalidConfig,
        "Null value not supported for topic configs: retention.ms,segment.bytes",
    ),
    (
        NewTopic("t", configs={"retention.ms": "soon"}),
        InvalidConfig,
        "Invalid value soon for configuration retention.ms: Not a number of type LONG",
    ),
    (NewTopic("t", configs={"no.such": "1"}), InvalidConfig, "Unknown topic config name: no.such"),
    (
        NewTopic("t", 1, assignments=[(0, [0])]),
        InvalidRequest,
        "A manual partition assignment was specified, but numPartitions was not set to -1.",
    ),
    (
        NewTopic("t", -1, 1, assignments=[(0, [0])]),
        InvalidRequest,
        "A manual partition assignment was specified, but replication factor was not set to -1.",
    ),
    (
        NewTopic("t", assignments=[(0, [0]), (0, [0])]),
        InvalidReplicaAssignment,
        "Found multiple manual partition assignments for partition 0",
    ),
    (
        NewTopic("t", assignments=[(0, [0]), (2, [0])]),
        InvalidReplicaAssignment,
        "partitions should be a consecutive 0-based integer sequence",
    ),
    (
        NewTopic("t", assignments=[(0, [])]),
        InvalidReplicaAssignment,
        "The manual partition assignment includes an empty replica list.",
    ),
    (
        NewTopic("t", assignments=[(0, [0, 0])]),
        InvalidReplicaAssignment,
        "The manual partition assignment includes the broker 0 more than once.",
    ),
    (
        NewTopic("t", assignments=[(0, [0]), (1, [7])]),
        InvalidReplicaAssignment,
        "The manual partition assignment includes broker 7, but no such broker is registered.",
    ),
]


def test_what_cannot_be_is_refused_and_leaves_no_trace(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.create("there")
        await cluster.create("the_re.is")
        before, tree = cluster.image, await cluster.tree()
        for new, error, message in REFUSED:
            (result,) = await cluster.controller.create_topics([new])
            assert isinstance(result, error), new
            assert message in str(result), new
        assert cluster.image is before
        assert await cluster.tree() == tree

    run(scenario, tmp_path)


def test_each_topic_of_a_request_has_its_own_answer(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        names = ["twice", "a.b", "good", "twice", "a_b"]
        results = await cluster.controller.create_topics([NewTopic(name) for name in names])
        assert [type(each) for each in results] == [
            InvalidRequest,
            PlannedTopic,
            PlannedTopic,
            InvalidRequest,
            InvalidTopicException,
        ]
        assert str(results[0]) == "Duplicate topic name."
        assert list(cluster.image.topics) == ["a.b", "good"]
        assert len(cluster.images) == 1

    run(scenario, tmp_path)


def test_a_request_for_more_than_there_may_be_is_refused_as_a_whole(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        for new in ([NewTopic("wide", 9_999), NewTopic("small", 2)], [NewTopic("none", 0)] * 10_001):
            results = await cluster.controller.create_topics(new)
            assert len(results) == len(new)
            assert all(isinstance(each, PolicyViolation) for each in results)
        assert cluster.image.topics == {}

    run(scenario, tmp_path)


def test_a_topic_that_is_only_checked_is_not_created(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        tree = await cluster.tree()
        (good, bad) = await cluster.controller.create_topics(
            [NewTopic("orders", 5, 1), NewTopic("bad", 0)], validate_only=True
        )
        assert isinstance(good, PlannedTopic)
        assert len(good.topic.partitions) == 5
        assert isinstance(bad, InvalidPartitions)
        assert cluster.image.topics == {}
        assert await cluster.tree() == tree

    run(scenario, tmp_path)


def test_assignments_say_how_many_partitions_there_are(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        new = NewTopic("orders", assignments=[(1, [0]), (0, [0]), (2, [0])])
        (created,) = await cluster.controller.create_topics([new])
        assert isinstance(created, PlannedTopic)
        assert len(created.topic.partitions) == 3

    run(scenario, tmp_path)


def test_a_topic_of_many_partitions_is_stored_in_parts(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        topic = await cluster.create("wide", 1_200)
        assert (await cluster.restart()).image.topics == {"wide": topic}
        assert await cluster.controller.delete_topics(["wide"]) == {"wide": None}
        assert await cluster.tree("/brokers/topics") == {}

    run(scenario, tmp_path)


def test_topics_are_created_for_those_who_use_them(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.create("there")
        failed = await cluster.writer.create_topics(["there", "new", "new", "bad name", "the.re"])
        assert list(failed) == ["bad name"]
        assert isinstance(failed["bad name"], InvalidTopicException)
        topics = cluster.image.topics
        assert list(topics) == ["there", "new", "the.re"]
        assert len(topics["new"].partitions) == 2

    run(scenario, tmp_path, num_partitions="2")


def test_topics_of_the_broker_have_settings_of_their_own(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        assert await cluster.writer.create_topics(["__consumer_offsets", "__transaction_state"]) == {}
        image = cluster.image
        offsets, transactions = image.topics["__consumer_offsets"], image.topics["__transaction_state"]
        assert (len(offsets.partitions), len(transactions.partitions)) == (7, 50)
        assert offsets.is_internal
        assert transactions.is_internal
        assert image.topic_config(offsets.name) == {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": "104857600",
        }
        assert image.topic_config(transactions.name) == {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": "2",
            "segment.bytes": "104857600",
            "unclean.leader.election.enable": "false",
        }

    run(scenario, tmp_path, offsets_topic_num_partitions="7")


def test_a_replication_factor_that_was_asked_for_is_not_lowered(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        failed = await cluster.writer.create_topics(["__consumer_offsets"])
        assert isinstance(failed["__consumer_offsets"], InvalidReplicationFactor)

    run(scenario, tmp_path, offsets_topic_replication_factor="3")


def test_a_deleted_topic_is_gone_from_image_store_and_disk(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        tree = await cluster.tree()
        topic = await cluster.create("orders", 2, configs={"retention.ms": "1000"})
        results = await cluster.controller.delete_topics(["orders", "no.such"])
        assert results["orders"] is None
        assert isinstance(results["no.such"], UnknownTopicOrPartition)
        assert cluster.node.deleted == [("orders", 0), ("orders", 1)]
        image = cluster.image
        assert (image.topics, image.topic_names, image.topic_configs) == ({}, {}, {})
        assert await cluster.tree() == tree
        again = await cluster.create("orders")
        assert again.id != topic.id

    run(scenario, tmp_path)


def test_a_topic_that_is_made_again_is_not_the_one_to_delete(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        controller = cluster.controller
        old = await cluster.create("orders")
        ids = {"orders": old.id}
        deleted = await controller.delete_topics(["orders"], ids=ids)
        new, late = await asyncio.gather(
            cluster.create("orders"), controller.delete_topics(["orders"], ids=ids)
        )
        assert deleted == {"orders": None}
        assert isinstance(late["orders"], UnknownTopicId)
        assert cluster.image.topics == {"orders": new}
        await controller.delete_topics(["orders"])
        late = await controller.delete_topics(["orders"], ids=ids)
        assert isinstance(late["orders"], UnknownTopicId)

    run(scenario, tmp_path)


def test_nobody_sees_a_topic_while_its_logs_are_deleted(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.create("orders")
        seen = []

        async def stop_replicas(request: StopReplicaRequest) -> StopReplicaResponse:
            seen.append((list(cluster.image.topics), await cluster.tree("/admin/delete_topics")))
            return stopped(request)

        cluster.node.stop_replicas = stop_replicas
        assert await cluster.controller.delete_topics(["orders"]) == {"orders": None}
        # The replica is stopped, then deleted.
        assert seen == [([], {"/admin/delete_topics/orders": b""})] * 2

    run(scenario, tmp_path)


def test_a_deletion_that_fails_is_finished_at_the_next_start(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        tree = await cluster.tree()
        await cluster.create("orders", 2)

        async def fail(request: StopReplicaRequest) -> StopReplicaResponse:
            return stopped(request, KafkaStorageError.code)

        cluster.node.stop_replicas = fail
        results = await cluster.controller.delete_topics(["orders"])
        assert isinstance(results["orders"], KafkaStorageError)
        assert cluster.image.topics == {}
        (again,) = await cluster.controller.create_topics([NewTopic("orders")])
        assert isinstance(again, TopicAlreadyExists)
        assert str(again) == "Topic 'orders' is marked for deletion."
        (grown,) = await cluster.controller.create_partitions([NewPartitions("orders", 3)])
        assert isinstance(grown, InvalidTopicException)
        assert str(grown) == "The topic is queued for deletion."
        # Whoever uses it comes again later.
        used = await cluster.writer.create_topics(["orders"])
        assert isinstance(used["orders"], LeaderNotAvailable)

        await cluster.restart()
        assert cluster.image.topics == {}
        assert cluster.node.deleted == [("orders", 0), ("orders", 1)]
        assert (await cluster.tree()).keys() == tree.keys()
        assert (await cluster.restart()).node.deleted == []
        await cluster.create("orders")

    run(scenario, tmp_path)


def test_partitions_are_added(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        topic = await cluster.create("orders", 2)
        await cluster.create("clicks", 1)
        results = await cluster.controller.create_partitions(
            [NewPartitions("orders", 4), NewPartitions("clicks", 2, [[0]])]
        )
        orders = cluster.image.topics["orders"]
        assert results == [orders, cluster.image.topics["clicks"]]
        assert orders.id == topic.id
        assert len(orders.partitions) == 4
        assert orders.partitions[:2] == topic.partitions
        image = cluster.image
        assert (await cluster.restart()).image.topics == image.topics

    run(scenario, tmp_path)


REFUSED_PARTITIONS: list[tuple[NewPartitions, type[KafkaError], str]] = [
    (NewPartitions("no.such", 2), UnknownTopicOrPartition, "The topic 'no.such' does not exist."),
    (NewPartitions("orders", 2), InvalidPartitions, "Topic already has 2 partition(s)."),
    (
        NewPartitions("orders", 1),
        InvalidPartitions,
        "The topic orders currently has 2 partition(s); 1 would not be an increase.",
    ),
    (
        NewPartitions("orders", 4, [[0]]),
        InvalidReplicaAssignment,
        "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
    ),
    (
        NewPartitions("orders", 3, [[0, 1]]),
        InvalidReplicaAssignment,
        "The manual partition assignment includes broker 1, but no such broker is registered.",
    ),
    (NewPartitions("orders", 10_003), PolicyViolation, "Excessively large number of partitions"),
]


def test_partitions_that_cannot_be_added(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.create("orders", 2)
        before, tree = cluster.image, await cluster.tree()
        for new, error, message in REFUSED_PARTITIONS:
            (result,) = await cluster.controller.create_partitions([new])
            assert isinstance(result, error), new
            assert message in str(result), new
        assert cluster.image is before
        assert await cluster.tree() == tree

    run(scenario, tmp_path)


def test_partitions_that_are_only_checked_or_asked_for_twice_are_not_added(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        topic = await cluster.create("orders")
        (checked,) = await cluster.controller.create_partitions(
            [NewPartitions("orders", 2)], validate_only=True
        )
        assert isinstance(checked, TopicImage)
        twice = await cluster.controller.create_partitions(
            [NewPartitions("orders", 2), NewPartitions("orders", 3)]
        )
        assert [str(each) for each in twice] == ["Duplicate topic name."] * 2
        assert cluster.image.topics == {"orders": topic}

    run(scenario, tmp_path)


def test_changes_at_once_are_made_one_after_the_other(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        results = await asyncio.gather(
            *(cluster.controller.create_topics([NewTopic(f"t{index % 10}")]) for index in range(30))
        )
        created = [each for (each,) in results if isinstance(each, PlannedTopic)]
        assert len(created) == 10
        assert len(cluster.image.topics) == 10
        assert all(before is not after for before, after in cluster.images)
        assert [after for _, after in cluster.images[:-1]] == [before for before, _ in cluster.images[1:]]

    run(scenario, tmp_path)


def test_a_change_is_completed_when_the_one_who_asked_is_gone(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        creation = asyncio.ensure_future(cluster.controller.create_topics([NewTopic("orders")]))
        await asyncio.sleep(0)
        creation.cancel()
        with pytest.raises(asyncio.CancelledError):
            await creation
        # The next change has to wait for the one that was begun.
        await cluster.create("later")
        assert list(cluster.image.topics) == ["orders", "later"]

    run(scenario, tmp_path)


def test_a_controller_that_was_replaced_changes_nothing(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        other = await cluster.store.connect()
        await other.set("/controller_epoch", b"2")
        tree = await cluster.tree()
        with pytest.raises(NotController, match="another controller has taken over"):
            await cluster.controller.create_topics([NewTopic("orders")])
        # It knows now that it is not the controller.
        assert not cluster.controller.is_active
        with pytest.raises(NotController, match="not the correct controller"):
            await cluster.controller.delete_topics(["orders"])
        assert cluster.image.topics == {}
        assert await cluster.tree() == tree

    run(scenario, tmp_path)


def test_a_controller_that_has_stopped_changes_nothing(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.controller.close()
        with pytest.raises(NotController, match="stopping"):
            await cluster.controller.create_topics([NewTopic("orders")])
        await cluster.session.close()
        assert (await cluster.tree("/brokers/ids")) == {}

    run(scenario, tmp_path)
