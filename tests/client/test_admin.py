"""The admin client against a running broker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import barnabas
import barnabas.aio
from barnabas.client.admin_configs import ANY_NAME, quota_entity
from barnabas.client.admin_core import AdminErrors
from barnabas.client.admin_results import (
    CommittedOffset,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ConfigSource,
    GroupType,
    NewTopic,
    OffsetSpec,
    ResourceType,
    TopicPartitionReplica,
)
from barnabas.config.definition import UnknownSetting
from barnabas.errors import (
    GroupIdNotFound,
    InvalidConfig,
    InvalidPartitions,
    InvalidRequest,
    LogDirNotFound,
    OffsetOutOfRange,
    RequestTimedOut,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from barnabas.model import TopicPartition
from barnabas.testing import Broker, free_port
from tests.broker.raw_client import RawClient
from tests.broker.requests import batch
from tests.broker.requests import produce as produce_records


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running
        assert "Traceback" not in running.log()


@pytest.fixture(scope="module")
def admin(broker: Broker) -> Iterator[barnabas.Admin]:
    with barnabas.Admin(bootstrap_servers=broker.bootstrap) as client:
        yield client


def test_topics_come_and_go(admin: barnabas.Admin) -> None:
    created = admin.create_topics(
        ["made-1", NewTopic(name="made-2", partitions=4, configs={"retention.ms": "1000"})], partitions=2
    )
    assert [(topic.name, topic.partitions, topic.replication_factor) for topic in created.values()] == [
        ("made-1", 2, 1),
        ("made-2", 4, 1),
    ]
    configs = created["made-2"].configs
    assert configs is not None
    assert configs["retention.ms"].value == "1000"
    listed = {topic.name: topic for topic in admin.list_topics()}
    assert listed["made-2"].partitions == 4
    assert listed["made-2"].topic_id == created["made-2"].topic_id
    described = admin.describe_topics(["made-2", "made-1"])
    assert [partition.partition for partition in described["made-2"].partitions] == [0, 1, 2, 3]
    (node,) = admin.describe_cluster().nodes
    assert all(partition.leader == node.id for partition in described["made-2"].partitions)
    admin.delete_topics(["made-1", "made-2"])
    assert not {"made-1", "made-2"} & {topic.name for topic in admin.list_topics()}


def test_topics_by_name_and_number_of_partitions(admin: barnabas.Admin) -> None:
    admin.create_topics({"counted-1": 1, "counted-3": 3})
    described = admin.describe_topics(["counted-1", "counted-3"])
    assert [len(topic.partitions) for topic in described.values()] == [1, 3]
    assert {"counted-1", "counted-3"} <= admin.describe_topics().keys()


def test_a_topic_with_an_assignment(admin: barnabas.Admin) -> None:
    (node,) = admin.describe_cluster().nodes
    admin.create_topics(NewTopic(name="assigned", assignment={0: [node.id], 1: [node.id]}))
    assert len(admin.describe_topics("assigned")["assigned"].partitions) == 2


def test_one_item_raises_its_own_error(admin: barnabas.Admin) -> None:
    admin.create_topics("there")
    with pytest.raises(TopicAlreadyExists, match="there"):
        admin.create_topics("there")
    with pytest.raises(UnknownTopicOrPartition, match="topic not-there does not exist"):
        admin.describe_topics("not-there")
    with pytest.raises(UnknownTopicOrPartition):
        admin.delete_topics("not-there")


def test_several_items_raise_together_and_tell_what_was_done(admin: barnabas.Admin) -> None:
    admin.create_topics("old")
    with pytest.raises(AdminErrors, match=r"1 of 2 failed: old: .*already exists") as caught:
        admin.create_topics(["old", "new"])
    assert list(caught.value.errors) == ["old"]
    assert isinstance(caught.value.errors["old"], TopicAlreadyExists)
    assert list(caught.value.results) == ["new"]
    seen = []
    try:
        admin.create_topics(["old", "new"])
    except* TopicAlreadyExists as group:
        seen = list(group.exceptions)
    assert len(seen) == 2


def test_a_check_creates_nothing(admin: barnabas.Admin) -> None:
    admin.create_topics("checked", validate_only=True)
    assert "checked" not in {topic.name for topic in admin.list_topics()}


def test_more_partitions(admin: barnabas.Admin) -> None:
    admin.create_topics("growing")
    admin.create_partitions({"growing": 3})
    assert len(admin.describe_topics("growing")["growing"].partitions) == 3
    with pytest.raises(InvalidPartitions):
        admin.create_partitions({"growing": 2})


def test_offsets_and_deleted_records(admin: barnabas.Admin, broker: Broker) -> None:
    admin.create_topics("records")
    partition = TopicPartition("records", 0)
    produce(broker, "records", 10)
    assert admin.list_offsets([partition])[partition].offset == 10
    assert admin.delete_records({partition: 4}) == {partition: 4}
    listed = admin.list_offsets({partition: OffsetSpec.EARLIEST})[partition]
    assert (listed.offset, listed.timestamp_ms) == (4, None)
    by_time = admin.list_offsets({partition: 1_700_000_000_007})[partition]
    assert (by_time.offset, by_time.timestamp_ms) == (7, 1_700_000_000_007)
    assert admin.list_offsets({partition: 1_800_000_000_000})[partition].offset is None
    assert admin.delete_records({("records", 0): -1}) == {partition: 10}  # type: ignore[dict-item]
    with pytest.raises(OffsetOutOfRange):
        admin.delete_records({partition: 11})


def test_a_partition_that_is_not_there(admin: barnabas.Admin) -> None:
    admin.create_topics("small")
    with pytest.raises(UnknownTopicOrPartition, match="small has 1 partitions, and none with the number 7"):
        admin.list_offsets([TopicPartition("small", 7)])


def test_settings_of_a_topic(admin: barnabas.Admin) -> None:
    admin.create_topics("settings")
    topic = ConfigResource(ResourceType.TOPIC, "settings")
    admin.alter_configs({topic: {"retention.ms": "5000", "max.message.bytes": "2000"}})
    entry = admin.describe_configs(topic)[topic]["retention.ms"]
    assert (entry.value, entry.source) == ("5000", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    admin.alter_configs({topic: {"retention.ms": None}})
    found = admin.describe_configs(topic, names=["retention.ms"], include_documentation=True)[topic]
    assert list(found) == ["retention.ms"]
    assert found["retention.ms"].source is not ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert found["retention.ms"].documentation
    appended = ConfigChange(operation=ConfigOperation.APPEND, value="compact")
    admin.alter_configs({topic: {"cleanup.policy": appended}})
    assert admin.describe_configs(topic)[topic]["cleanup.policy"].value == "delete,compact"
    with pytest.raises(InvalidConfig):
        admin.alter_configs({topic: {"retention.ms": "soon"}})
    admin.alter_configs({topic: {"retention.ms": "7"}}, validate_only=True)
    assert admin.describe_configs(topic)[topic]["retention.ms"].value != "7"


def test_settings_of_a_broker(admin: barnabas.Admin) -> None:
    (node,) = admin.describe_cluster().nodes
    own = ConfigResource(ResourceType.BROKER, str(node.id))
    everybody = ConfigResource(ResourceType.BROKER, "")
    admin.alter_configs({everybody: {"log.cleaner.threads": "2"}})
    described = admin.describe_configs([own, everybody])
    assert described[own]["log.cleaner.threads"].source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    assert described[everybody]["log.cleaner.threads"].value == "2"
    with pytest.raises(InvalidRequest, match="there is no broker 12345"):
        admin.describe_configs(ConfigResource(ResourceType.BROKER, "12345"))


def test_groups_and_their_offsets(admin: barnabas.Admin) -> None:
    admin.create_topics({"read": 2})
    first, second = TopicPartition("read", 0), TopicPartition("read", 1)
    admin.alter_group_offsets("readers", {first: 0, second: CommittedOffset(offset=0, metadata="m")})
    assert admin.list_group_offsets("readers") == {
        first: CommittedOffset(offset=0),
        second: CommittedOffset(offset=0, metadata="m"),
    }
    assert admin.list_group_offsets("readers", [second]).keys() == {second}
    assert "readers" in {group.group_id for group in admin.list_groups()}
    assert "readers" not in {group.group_id for group in admin.list_groups(states=["Stable"])}
    described = admin.describe_groups("readers")["readers"]
    assert (described.type, described.state, described.members) == (GroupType.CLASSIC, "Empty", ())
    admin.delete_group_offsets("readers", [first])
    assert admin.list_group_offsets("readers").keys() == {second}
    admin.delete_groups("readers")
    with pytest.raises(GroupIdNotFound, match="readers"):
        admin.describe_groups("readers")
    with pytest.raises(AdminErrors):
        admin.delete_groups(["readers", "nobody"])


def test_quotas(admin: barnabas.Admin) -> None:
    loader, others = quota_entity({"client-id": "loader"}), quota_entity({"client-id": None})
    admin.alter_quotas({loader: {"producer_byte_rate": 1000.0}, others: {"consumer_byte_rate": 5.0}})
    assert admin.describe_quotas({"client-id": "loader"}) == {loader: {"producer_byte_rate": 1000.0}}
    assert admin.describe_quotas({"client-id": None}) == {others: {"consumer_byte_rate": 5.0}}
    assert admin.describe_quotas({"client-id": ANY_NAME}).keys() == {loader, others}
    admin.alter_quotas({loader: {"producer_byte_rate": None}, others: {"consumer_byte_rate": None}})
    assert admin.describe_quotas() == {}


def test_leaders_and_reassignments(admin: barnabas.Admin) -> None:
    admin.create_topics("led")
    partition = TopicPartition("led", 0)
    assert admin.elect_leaders([partition]) == {partition: False}
    with pytest.raises(UnknownTopicOrPartition):
        admin.elect_leaders([TopicPartition("led", 9)])
    assert admin.list_reassignments() == {}
    (node,) = admin.describe_cluster().nodes
    admin.alter_reassignments({partition: [node.id]})


def test_log_directories(admin: barnabas.Admin, broker: Broker) -> None:
    admin.create_topics("stored")
    (node,) = admin.describe_cluster().nodes
    directory = admin.describe_log_dirs()[node.id][str(broker.directory)]
    assert directory.replicas[TopicPartition("stored", 0)].is_future is False
    assert directory.total_bytes is not None
    chosen = admin.describe_log_dirs([node.id], partitions=[TopicPartition("stored", 0)])[node.id]
    assert list(chosen[str(broker.directory)].replicas) == [TopicPartition("stored", 0)]
    with pytest.raises(LogDirNotFound):
        admin.alter_replica_log_dirs({TopicPartitionReplica("stored", 0, node.id): "/elsewhere"})


def test_transactions(admin: barnabas.Admin) -> None:
    admin.create_topics("written")
    partition = TopicPartition("written", 0)
    fenced = admin.fence_producers("ledger")["ledger"]
    assert fenced.producer_epoch >= 0
    listed = {each.transactional_id: each for each in admin.list_transactions()}
    assert listed["ledger"].producer_id == fenced.producer_id
    described = admin.describe_transactions("ledger")["ledger"]
    assert (described.state, described.partitions) == ("Empty", ())
    assert admin.describe_producers([partition]) == {partition: ()}
    with pytest.raises(InvalidRequest, match="no open transaction of written-0 begins at offset 3"):
        admin.abort_hanging_transaction(partition, 3)


def test_features_and_the_cluster(admin: barnabas.Admin) -> None:
    cluster = admin.describe_cluster()
    assert cluster.controller_id == cluster.nodes[0].id
    features = admin.describe_features()
    assert features["transaction.version"].level == 2


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


def test_a_broker_that_is_not_there_ends_in_time(broker: Broker) -> None:
    with (
        barnabas.Admin(bootstrap_servers=f"127.0.0.1:{free_port()}") as admin,
        pytest.raises(RequestTimedOut, match="no broker can be reached"),
    ):
        admin.list_topics(timeout_ms=300)


def test_a_broker_that_comes_back_is_found_again() -> None:
    with Broker() as broker, broker.admin() as admin:
        admin.create_topics("lasting")
        broker.stop()
        with pytest.raises(RequestTimedOut):
            admin.describe_topics("lasting", timeout_ms=200)
        broker.start()
        assert list(admin.describe_topics("lasting")) == ["lasting"]


def produce(broker: Broker, topic: str, count: int) -> None:
    """Records a millisecond apart."""
    with RawClient(broker.port) as client:
        answer = produce_records(client, topic, batch(*(b"%d" % index for index in range(count))))
    assert answer.error_code == 0
