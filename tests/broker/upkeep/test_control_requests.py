"""The controller's requests to a running broker: who may send them, and what they do."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.broker.upkeep.control_requests import ControlRequests, LocalLinks
from barnabas.coordination.controller.messages import (
    leader_and_isr,
    stop_deleted_replicas,
    update_metadata,
    whole,
)
from barnabas.coordination.metadata.image import BrokerImage, MetadataImage
from barnabas.errors import FencedLeaderEpoch, KafkaStorageError, StaleBrokerEpoch, StaleControllerEpoch
from barnabas.model import BrokerId
from barnabas.protocol.messages.leader_and_isr_request import LeaderAndIsrRequest
from tests.broker.record_requests import batch, create_topic, produce
from tests.broker.replication.roles import change_replicas
from tests.broker.running import RunningBroker


def receiver(broker: RunningBroker) -> ControlRequests:
    links = broker.server.broker.controller._links
    assert isinstance(links, LocalLinks)
    return links._requests


def own(image: MetadataImage) -> BrokerImage:
    (broker,) = image.brokers.values()
    return broker


def test_a_request_for_an_earlier_registration_is_refused(tmp_path: Path) -> None:
    with RunningBroker(tmp_path) as broker, broker.client() as client:
        create_topic(client, "orders")
        image, requests = broker.server.broker.image, receiver(broker)
        earlier = BrokerImage(id=own(image).id, epoch=own(image).epoch - 1)
        topics = list(image.topics.values())
        roles = leader_and_isr(image, earlier, whole(topics))
        stop = stop_deleted_replicas(image, earlier, topics)
        assert roles is not None
        assert stop is not None
        stale = StaleBrokerEpoch.code
        assert broker.call(lambda: requests.leader_and_isr(roles)).error_code == stale
        assert broker.call(lambda: requests.stop_replica(stop)).error_code == stale

        async def update() -> int:
            return requests.update_metadata(update_metadata(image, earlier, deleted=topics)).error_code

        assert broker.call(update) == stale
        assert broker.server.broker.image is image
        assert (tmp_path / "orders-0").is_dir()


def test_a_registration_that_ends_while_settings_are_read_ends_its_roles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RunningBroker(tmp_path) as broker, broker.client() as client:
        create_topic(client, "orders")
        image, requests = broker.server.broker.image, receiver(broker)
        roles = leader_and_isr(image, own(image), whole(list(image.topics.values())))
        assert roles is not None

        async def register_again(request: LeaderAndIsrRequest) -> None:
            monkeypatch.setattr(requests._registration, "epoch", roles.broker_epoch + 1)

        monkeypatch.setattr(requests._updates, "learn_topics", register_again)
        response = broker.call(lambda: requests.leader_and_isr(roles))
        [topic] = response.topics
        stale = StaleBrokerEpoch.code
        assert [response.error_code, *(each.error_code for each in topic.partition_errors)] == [stale, stale]


def test_a_controller_that_was_replaced_is_refused(tmp_path: Path) -> None:
    with RunningBroker(tmp_path) as broker, broker.client() as client:
        create_topic(client, "orders")
        image, requests = broker.server.broker.image, receiver(broker)
        replaced = MetadataImage(
            cluster_id=image.cluster_id,
            controller_id=BrokerId(9),
            controller_epoch=image.controller_epoch - 1,
            brokers=image.brokers,
        )
        topics = list(image.topics.values())
        stop = stop_deleted_replicas(replaced, own(image), topics)
        assert stop is not None
        assert broker.call(lambda: requests.stop_replica(stop)).error_code == StaleControllerEpoch.code

        async def update() -> int:
            return requests.update_metadata(update_metadata(replaced, own(image), deleted=topics)).error_code

        assert broker.call(update) == StaleControllerEpoch.code
        assert broker.server.broker.image is image
        assert (tmp_path / "orders-0").is_dir()


def test_replicas_are_stopped_and_their_logs_deleted_before_the_answer(tmp_path: Path) -> None:
    with RunningBroker(tmp_path) as broker, broker.client() as client:
        create_topic(client, "orders")
        image, requests = broker.server.broker.image, receiver(broker)
        stop = stop_deleted_replicas(image, own(image), list(image.topics.values()))
        assert stop is not None
        for _ in range(2):
            # A broker that has no such partition any more answers the same.
            response = broker.call(lambda: requests.stop_replica(stop))
            assert {each.error_code for each in response.partition_errors} == {0}
            assert not (tmp_path / "orders-0").exists()
            assert len(broker.server.broker.replicas) == 0


def test_a_replica_with_a_later_role_keeps_its_log(tmp_path: Path) -> None:
    with RunningBroker(tmp_path) as broker, broker.client() as client:
        create_topic(client, "orders")
        image, requests = broker.server.broker.image, receiver(broker)
        replicas = broker.server.broker.replicas
        stop = stop_deleted_replicas(image, own(image), list(image.topics.values()))
        assert stop is not None
        [state] = stop.topic_states[0].partition_states
        state.leader_epoch = 0

        async def elect() -> None:
            change_replicas(replicas, replicas.partition("orders", 0), [own(image).id])

        broker.call(elect)
        response = broker.call(lambda: requests.stop_replica(stop))
        assert [each.error_code for each in response.partition_errors] == [FencedLeaderEpoch.code]
        assert (tmp_path / "orders-0").is_dir()
        assert produce(client, "orders", batch(b"a"), acks=-1).error_code == 0


def test_logs_that_cannot_be_deleted_are_answered_by_partition(tmp_path: Path) -> None:
    directories = [tmp_path / "a", tmp_path / "b"]
    settings = {"log.dirs": ",".join(map(str, directories))}
    with RunningBroker(tmp_path, settings) as broker, broker.client() as client:
        create_topic(client, "orders", partitions=4)
        image, requests = broker.server.broker.image, receiver(broker)
        manager = broker.server.broker.log_manager
        lost = {index for index in range(4) if (directories[1] / f"orders-{index}").is_dir()}
        assert len(lost) == 2

        async def fail() -> None:
            manager.directory(str(directories[1])).fail(KafkaStorageError("the disk is gone"))

        broker.call(fail)
        stop = stop_deleted_replicas(image, own(image), list(image.topics.values()))
        assert stop is not None
        for _ in range(2):
            # The controller asks again if it gets no answer.
            response = broker.call(lambda: requests.stop_replica(stop))
            errors = {each.partition_index: each.error_code for each in response.partition_errors}
            assert errors == {index: KafkaStorageError.code if index in lost else 0 for index in range(4)}
