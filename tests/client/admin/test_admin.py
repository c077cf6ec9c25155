"""The admin client against running brokers: ours, and Apache Kafka's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

import barnabas
from barnabas.client.admin.configs import ANY_NAME, quota_entity
from barnabas.client.admin.errors import AdminErrors
from barnabas.client.admin.results import (
    CommittedOffset,
    ConfigChange,
    ConfigEntry,
    ConfigOperation,
    ConfigResource,
    ConfigSource,
    GroupType,
    NewTopic,
    OffsetSpec,
    ResourceType,
    ScramMechanism,
    TopicPartitionReplica,
)
from barnabas.errors import (
    BrokerIdNotRegistered,
    GroupIdNotFound,
    GroupSubscribedToTopic,
    InvalidConfig,
    InvalidPartitions,
    InvalidRequest,
    KafkaError,
    LogDirNotFound,
    NonEmptyGroup,
    OffsetOutOfRange,
    ResourceNotFound,
    TopicAlreadyExists,
    UnacceptableCredential,
    UnknownMemberId,
    UnknownTopicOrPartition,
)
from barnabas.model import TopicPartition
from tests.client.consumer_servers import SERVERS, Server, running
from tests.peers.kafka_peer import V3
from tests.waiting import Deadline

T = TypeVar("T")

WAIT_S = 60.0


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(request.param, tmp_path_factory.mktemp("admin")) as started:
        yield started


@pytest.fixture(scope="module")
def admin(server: Server) -> barnabas.Admin:
    return server.admin


def make(admin: barnabas.Admin, topics: str | dict[str, int]) -> None:
    """Creates topics and waits until they can be used."""
    admin.create_topics(topics)
    names = [topics] if isinstance(topics, str) else list(topics)
    settled(
        lambda: admin.describe_topics(names),
        lambda found: all(each.leader is not None for topic in found.values() for each in topic.partitions),
    )


def settled(call: Callable[[], T], is_so: Callable[[T], bool] = lambda _: True) -> T:
    """What a call gives once it is so: Apache Kafka answers before all of it knows of a change."""
    deadline = Deadline()
    while True:
        try:
            found = call()
            if is_so(found):
                return found
        except (KafkaError, AdminErrors):
            if deadline.is_over:
                raise
        deadline.check("it does not come to be so")
        time.sleep(0.01)


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
    listed = settled(
        lambda: {topic.name: topic for topic in admin.list_topics()}, lambda found: "made-2" in found
    )
    assert listed["made-2"].partitions == 4
    assert listed["made-2"].topic_id == created["made-2"].topic_id
    described = admin.describe_topics(["made-2", "made-1"])
    assert [partition.partition for partition in described["made-2"].partitions] == [0, 1, 2, 3]
    (node,) = admin.describe_cluster().nodes
    assert all(partition.leader == node.id for partition in described["made-2"].partitions)
    admin.delete_topics(["made-1", "made-2"])
    settled(admin.list_topics, lambda found: not {"made-1", "made-2"} & {topic.name for topic in found})


def test_topics_by_name_and_number_of_partitions(admin: barnabas.Admin) -> None:
    make(admin, {"counted-1": 1, "counted-3": 3})
    described = admin.describe_topics(["counted-1", "counted-3"])
    assert [len(topic.partitions) for topic in described.values()] == [1, 3]
    assert {"counted-1", "counted-3"} <= admin.describe_topics().keys()


def test_a_topic_with_an_assignment(admin: barnabas.Admin) -> None:
    (node,) = admin.describe_cluster().nodes
    admin.create_topics(NewTopic(name="assigned", assignment={0: [node.id], 1: [node.id]}))
    settled(lambda: admin.describe_topics("assigned")["assigned"], lambda found: len(found.partitions) == 2)


def test_one_item_raises_its_own_error(admin: barnabas.Admin) -> None:
    make(admin, "there")
    with pytest.raises(TopicAlreadyExists, match="there"):
        make(admin, "there")
    with pytest.raises(UnknownTopicOrPartition, match="topic not-there does not exist"):
        admin.describe_topics("not-there")
    with pytest.raises(UnknownTopicOrPartition):
        admin.delete_topics("not-there")


def test_several_items_raise_together_and_tell_what_was_done(admin: barnabas.Admin) -> None:
    make(admin, "old")
    with pytest.raises(AdminErrors, match=r"1 of 2 failed: .*old.* already exists") as caught:
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
    make(admin, "growing")
    admin.create_partitions({"growing": 3})
    settled(lambda: admin.describe_topics("growing")["growing"], lambda found: len(found.partitions) == 3)
    with pytest.raises(InvalidPartitions):
        admin.create_partitions({"growing": 2})


def test_offsets_and_deleted_records(admin: barnabas.Admin, server: Server) -> None:
    make(admin, "records")
    partition = TopicPartition("records", 0)
    with barnabas.Producer(bootstrap_servers=server.address) as producer:
        for number in range(10):
            producer.send("records", b"value", timestamp_ms=1_700_000_000_000 + number)
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


@pytest.mark.slow
def test_a_partition_that_is_not_there(admin: barnabas.Admin) -> None:
    make(admin, "small")
    with pytest.raises(UnknownTopicOrPartition, match="small has 1 partitions, and none with the number 7"):
        admin.list_offsets([TopicPartition("small", 7)])


def test_settings_of_a_topic(admin: barnabas.Admin) -> None:
    make(admin, "settings")
    topic = ConfigResource(ResourceType.TOPIC, "settings")
    admin.alter_configs({topic: {"retention.ms": "5000", "max.message.bytes": "2000"}})
    entry = settled(
        lambda: admin.describe_configs(topic)[topic]["retention.ms"], lambda found: found.value == "5000"
    )
    assert entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG
    admin.alter_configs({topic: {"retention.ms": None}})
    found = settled(
        lambda: admin.describe_configs(topic, names=["retention.ms"], include_documentation=True)[topic],
        lambda found: found["retention.ms"].source is not ConfigSource.DYNAMIC_TOPIC_CONFIG,
    )
    assert list(found) == ["retention.ms"]
    assert found["retention.ms"].documentation
    appended = ConfigChange(operation=ConfigOperation.APPEND, value="compact")
    admin.alter_configs({topic: {"cleanup.policy": appended}})
    settled(
        lambda: admin.describe_configs(topic)[topic]["cleanup.policy"],
        lambda found: found.value == "delete,compact",
    )
    with pytest.raises(InvalidConfig):
        admin.alter_configs({topic: {"retention.ms": "soon"}})
    admin.alter_configs({topic: {"retention.ms": "7"}}, validate_only=True)
    assert admin.describe_configs(topic)[topic]["retention.ms"].value != "7"


def test_settings_of_a_broker(admin: barnabas.Admin) -> None:
    (node,) = admin.describe_cluster().nodes
    own = ConfigResource(ResourceType.BROKER, str(node.id))
    everybody = ConfigResource(ResourceType.BROKER, "")
    admin.alter_configs({everybody: {"log.cleaner.threads": "2"}})

    def is_known(found: dict[ConfigResource, dict[str, ConfigEntry]]) -> bool:
        entry, default = found[own]["log.cleaner.threads"], found[everybody].get("log.cleaner.threads")
        return (
            default is not None
            and default.value == "2"
            and entry.source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
        )

    settled(lambda: admin.describe_configs([own, everybody]), is_known)
    with pytest.raises(BrokerIdNotRegistered, match="there is no broker 12345"):
        admin.describe_configs(ConfigResource(ResourceType.BROKER, "12345"))


def test_groups_and_their_offsets(admin: barnabas.Admin) -> None:
    make(admin, {"read": 2})
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


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_of_a_group(admin: barnabas.Admin, server: Server, protocol: str) -> None:
    if protocol == "consumer" and not server.has_consumer_protocol:
        pytest.skip(f"{server.kind} has no groups of this kind unless it is told to")
    name = f"members-{protocol}"
    make(admin, {name: 2})
    with server.consumer(group_id=name, group_protocol=protocol, client_id="reader") as consumer:
        consumer.subscribe([name])
        settled(lambda: consumer.poll(50), lambda _: bool(consumer.assignment()))
        described = settled(
            lambda: admin.describe_groups(name)[name],
            lambda found: found.state == "Stable" and all(member.assignment for member in found.members),
        )
        (member,) = described.members
        assert described.type is GroupType(protocol)
        assert member.client_id == "reader"
        assert member.assignment == (TopicPartition(name, 0), TopicPartition(name, 1))
        if protocol == "consumer":
            assert member.target_assignment == member.assignment
            assert member.subscribed_topics == (name,)
        with pytest.raises(NonEmptyGroup):
            admin.delete_groups(name)
        with pytest.raises((GroupSubscribedToTopic, UnknownMemberId)):
            admin.delete_group_offsets(name, [TopicPartition(name, 0)])
    settled(lambda: admin.describe_groups(name)[name], lambda found: not found.members)
    admin.delete_groups(name)


def test_members_are_removed(admin: barnabas.Admin, server: Server) -> None:
    make(admin, "static")
    with server.consumer(group_id="static", group_instance_id="one", enable_auto_commit=False) as consumer:
        consumer.subscribe(["static"])
        settled(lambda: consumer.poll(50), lambda _: bool(consumer.assignment()))
        with pytest.raises(UnknownMemberId, match="member nobody is not in the group"):
            admin.remove_members("static", ["nobody"])
        admin.remove_members("static", ["one"])
        settled(lambda: admin.describe_groups("static")["static"], lambda found: not found.members)
        admin.remove_members("static")


def test_quotas(admin: barnabas.Admin) -> None:
    loader, others = quota_entity({"client-id": "loader"}), quota_entity({"client-id": None})
    admin.alter_quotas({loader: {"producer_byte_rate": 1000.0}, others: {"consumer_byte_rate": 1e9}})
    settled(admin.describe_quotas, lambda found: found.keys() == {loader, others})
    assert admin.describe_quotas({"client-id": "loader"}) == {loader: {"producer_byte_rate": 1000.0}}
    assert admin.describe_quotas({"client-id": None}) == {others: {"consumer_byte_rate": 1e9}}
    assert admin.describe_quotas({"client-id": ANY_NAME}).keys() == {loader, others}
    admin.alter_quotas({loader: {"producer_byte_rate": None}, others: {"consumer_byte_rate": None}})
    settled(admin.describe_quotas, lambda found: found == {})


def test_leaders_and_reassignments(admin: barnabas.Admin) -> None:
    make(admin, "led")
    partition = TopicPartition("led", 0)
    assert admin.elect_leaders([partition]) == {partition: False}
    with pytest.raises(UnknownTopicOrPartition):
        admin.elect_leaders([TopicPartition("led", 9)])
    assert admin.list_reassignments() == {}
    (node,) = admin.describe_cluster().nodes
    admin.alter_reassignments({partition: [node.id]})


def test_log_directories(admin: barnabas.Admin, server: Server) -> None:
    make(admin, "stored")
    (node,) = admin.describe_cluster().nodes
    directory = settled(
        lambda: admin.describe_log_dirs()[node.id][str(server.process.directory)],
        lambda found: TopicPartition("stored", 0) in found.replicas,
    )
    assert directory.replicas[TopicPartition("stored", 0)].is_future is False
    assert directory.total_bytes is not None
    chosen = admin.describe_log_dirs([node.id], partitions=[TopicPartition("stored", 0)])[node.id]
    assert list(chosen[str(server.process.directory)].replicas) == [TopicPartition("stored", 0)]
    with pytest.raises(LogDirNotFound):
        admin.alter_replica_log_dirs({TopicPartitionReplica("stored", 0, node.id): "/elsewhere"})


def test_transactions(admin: barnabas.Admin) -> None:
    make(admin, "written")
    partition = TopicPartition("written", 0)
    fenced = settled(lambda: admin.fence_producers("ledger")["ledger"])
    assert fenced.producer_epoch >= 0
    listed = {each.transactional_id: each for each in admin.list_transactions()}
    assert listed["ledger"].producer_id == fenced.producer_id
    described = admin.describe_transactions("ledger")["ledger"]
    assert (described.state, described.partitions) == ("Empty", ())
    assert admin.describe_producers([partition]) == {partition: ()}
    with pytest.raises(InvalidRequest, match="no open transaction of written-0 begins at offset 3"):
        admin.abort_hanging_transaction(partition, 3)


def test_an_open_transaction(admin: barnabas.Admin, server: Server) -> None:
    make(admin, "open")
    partition = TopicPartition("open", 0)
    with barnabas.Producer(bootstrap_servers=server.address, transactional_id="opened") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("open", b"x").result(WAIT_S)
        described = admin.describe_transactions("opened")["opened"]
        assert (described.state, described.partitions) == ("Ongoing", (partition,))
        assert described.start_ms is not None
        assert "opened" in {each.transactional_id for each in admin.list_transactions(states=["Ongoing"])}
        (state,) = admin.describe_producers([partition])[partition]
        assert (state.producer_id, state.transaction_start_offset) == (described.producer_id, 0)
        admin.fence_producers("opened")
        settled(
            lambda: admin.describe_transactions("opened")["opened"],
            lambda found: found.state in ("CompleteAbort", "Empty"),
        )
        assert admin.describe_producers([partition])[partition][0].transaction_start_offset is None
        with pytest.raises(KafkaError):
            producer.commit_transaction()


def test_features_and_the_cluster(admin: barnabas.Admin, server: Server) -> None:
    cluster = admin.describe_cluster()
    assert cluster.controller_id == cluster.nodes[0].id
    features = admin.describe_features()
    if server.kind != V3:
        assert features["transaction.version"].level == 2
        assert features["metadata.version"].level == 30


def test_users_with_passwords(admin: barnabas.Admin) -> None:
    sha_256, sha_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
    admin.set_scram_password("ann", "secret")
    admin.set_scram_password("ann", "secret", mechanism=sha_256, iterations=4_096)
    admin.set_scram_password("ben", "secret")
    settled(admin.describe_scram_users, lambda found: found.keys() == {"ann", "ben"})
    assert admin.describe_scram_users(["ann"]) == {"ann": {sha_256: 4_096, sha_512: 8_192}}
    with pytest.raises(UnacceptableCredential, match="Too few iterations"):
        admin.set_scram_password("ann", "secret", iterations=1)
    with pytest.raises(ResourceNotFound):
        admin.describe_scram_users(["nobody"])
    admin.delete_scram_password("ben", sha_512)
    settled(admin.describe_scram_users, lambda found: found.keys() == {"ann"})
    with pytest.raises(ResourceNotFound):
        admin.delete_scram_password("ben", sha_512)
    admin.delete_scram_password("ann", sha_512)
    settled(admin.describe_scram_users, lambda found: found == {"ann": {sha_256: 4_096}})
