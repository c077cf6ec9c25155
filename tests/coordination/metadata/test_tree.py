"""What Kafka keeps in ZooKeeper: its own bytes, read and written. The bytes are those of Kafka 3.9.1's classes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from barnabas.config.listeners import Endpoint, SecurityProtocol
from barnabas.coordination.metadata import tree
from barnabas.coordination.metadata.features import LevelRange
from barnabas.coordination.metadata.node_reader import MalformedNode
from barnabas.coordination.metadata.tree import (
    BrokerRegistration,
    FeatureNode,
    PartitionState,
    ProducerIdBlock,
    ReplicaAssignment,
    TopicAssignment,
)
from barnabas.model import BrokerId, LeaderEpoch, ProducerId, TopicPartition

PARTITION = TopicPartition("t", 0)
PLAIN = Endpoint(listener_name="PLAINTEXT", host="h", port=9092, security_protocol=SecurityProtocol.PLAINTEXT)
INSIDE = Endpoint(listener_name="IN", host="::1", port=9093, security_protocol=SecurityProtocol.SASL_SSL)


def brokers(*ids: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(each) for each in ids)


def decode_broker(data: bytes) -> BrokerRegistration:
    return tree.decode_broker(BrokerId(1), data)


def decode_topic(data: bytes) -> TopicAssignment:
    return tree.decode_topic("t", data)


def decode_state(data: bytes) -> PartitionState:
    return tree.decode_partition_state(PARTITION, data)


def decode_config(data: bytes) -> dict[str, str]:
    return tree.decode_config("/config/topics/t", data)


def decode_isr_change(data: bytes) -> list[TopicPartition]:
    return tree.decode_isr_change("/isr_change_notification/isr_change_0000000000", data)


GOLDEN: list[tuple[Callable[[Any], bytes], Callable[[bytes], Any], Any, str]] = [
    (tree.encode_controller_epoch, tree.decode_controller_epoch, 7, "7"),
    (
        tree.encode_cluster_id,
        tree.decode_cluster_id,
        "AAAAAAAAQACAAAAAAAAAAQ",
        '{"version":"1","id":"AAAAAAAAQACAAAAAAAAAAQ"}',
    ),
    (
        tree.encode_topic,
        decode_topic,
        TopicAssignment(
            topic_id=bytes(range(1, 17)),
            partitions={
                0: ReplicaAssignment(replicas=brokers(0, 1)),
                1: ReplicaAssignment(replicas=brokers(1, 2), adding=brokers(9)),
                2: ReplicaAssignment(replicas=brokers(2, 3), removing=brokers(8)),
            },
        ),
        (
            '{"partitions":{"0":[0,1],"1":[1,2],"2":[2,3]},"topic_id":"AQIDBAUGBwgJCgsMDQ4PEA",'
            '"adding_replicas":{"1":[9]},"removing_replicas":{"2":[8]},"version":3}'
        ),
    ),
    (
        tree.encode_topic,
        decode_topic,
        TopicAssignment(topic_id=None, partitions={}),
        '{"partitions":{},"adding_replicas":{},"removing_replicas":{},"version":3}',
    ),
    (
        tree.encode_partition_state,
        decode_state,
        PartitionState(
            leader=BrokerId(1), leader_epoch=LeaderEpoch(5), isr=brokers(1, 2), controller_epoch=6
        ),
        '{"controller_epoch":6,"leader":1,"version":1,"leader_epoch":5,"isr":[1,2]}',
    ),
    (
        tree.encode_partition_state,
        decode_state,
        PartitionState(
            leader=BrokerId(1),
            leader_epoch=LeaderEpoch(5),
            isr=brokers(1, 2),
            controller_epoch=6,
            leader_recovery_state=1,
        ),
        '{"controller_epoch":6,"leader":1,"version":1,"leader_recovery_state":1,"leader_epoch":5,"isr":[1,2]}',
    ),
    (tree.encode_config, decode_config, {"retention.ms": "5"}, '{"version":1,"config":{"retention.ms":"5"}}'),
    (
        tree.encode_isr_change,
        decode_isr_change,
        [TopicPartition("t", 1), TopicPartition("t", 0)],
        '{"version":1,"partitions":[{"topic":"t","partition":1},{"topic":"t","partition":0}]}',
    ),
    (
        tree.encode_reassignment,
        tree.decode_reassignment,
        {PARTITION: brokers(1, 2)},
        '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}',
    ),
    (
        tree.encode_preferred_election,
        tree.decode_preferred_election,
        [PARTITION],
        '{"version":1,"partitions":[{"topic":"t","partition":0}]}',
    ),
    (
        tree.encode_producer_id_block,
        tree.decode_producer_id_block,
        ProducerIdBlock(broker_id=BrokerId(3), first=ProducerId(1000), last=ProducerId(1999)),
        '{"version":1,"broker":3,"block_start":"1000","block_end":"1999"}',
    ),
    (
        tree.encode_features,
        tree.decode_features,
        FeatureNode(enabled=True, features={"metadata.version": 4}),
        '{"features":{"metadata.version":{"max_version_level":4}},"version":2,"status":1}',
    ),
    (
        tree.encode_features,
        tree.decode_features,
        FeatureNode(enabled=False, features={"f": 1}, version=1),
        '{"features":{"f":{"max_version_level":1,"min_version_level":1}},"version":1,"status":0}',
    ),
    (
        tree.encode_broker,
        decode_broker,
        BrokerRegistration(broker_id=BrokerId(1), endpoints=(PLAIN, INSIDE), timestamp_ms=1794762527792),
        (
            '{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT","IN":"SASL_SSL"},'
            '"endpoints":["PLAINTEXT://h:9092","IN://[::1]:9093"],"jmx_port":-1,"port":9092,"host":"h","version":5,'
            '"timestamp":"1794762527792"}'
        ),
    ),
    (
        tree.encode_broker,
        decode_broker,
        BrokerRegistration(
            broker_id=BrokerId(1),
            endpoints=(INSIDE,),
            timestamp_ms=1794762527848,
            rack="r1",
            features={"f": LevelRange(1, 3)},
        ),
        (
            '{"features":{"f":{"min_version":1,"max_version":3}},"listener_security_protocol_map":{"IN":"SASL_SSL"},'
            '"endpoints":["IN://[::1]:9093"],"rack":"r1","jmx_port":-1,"port":-1,"host":null,"version":5,'
            '"timestamp":"1794762527848"}'
        ),
    ),
]


@pytest.mark.parametrize(("encode", "decode", "value", "text"), GOLDEN)
def test_a_node_has_kafkas_bytes(
    encode: Callable[[Any], bytes], decode: Callable[[bytes], Any], value: Any, text: str
) -> None:
    assert encode(value).decode() == text
    assert decode(text.encode()) == value


def test_nodes_that_are_read_only_in_part() -> None:
    controller = tree.encode_controller(3, 1700000000000)
    assert controller == b'{"version":2,"brokerid":3,"timestamp":"1700000000000","kraftControllerEpoch":-1}'
    assert tree.decode_controller(controller) == 3
    assert tree.decode_controller(b'{"version":1,"brokerid":4,"timestamp":"1"}') == 4
    assert tree.encode_log_dir_event(3) == b'{"version":1,"broker":3,"event":1}'
    assert tree.decode_log_dir_event("/x", b'{"version":1,"broker":3,"event":1}') == 3
    assert tree.encode_config_change("topics", "t") == b'{"version":2,"entity_path":"topics/t"}'
    change = b'{"version":2,"entity_path":"users/u/clients/c"}'
    assert tree.decode_config_change("/x", change) == ("users", "u/clients/c")
    assert tree.decode_config("/config/topics/t", b"") == {}


@pytest.mark.parametrize(
    ("data", "endpoints"),
    [
        (b'{"version":1,"host":"h","port":9092,"jmx_port":9999,"timestamp":"2233345666"}', (PLAIN,)),
        (
            (
                b'{"version":3,"host":"h","port":9092,"jmx_port":9999,"timestamp":"2233345666",'
                b'"endpoints":["PLAINTEXT://h:9092"],"rack":"dc1"}'
            ),
            (PLAIN,),
        ),
    ],
)
def test_old_registrations_are_read(data: bytes, endpoints: tuple[Endpoint, ...]) -> None:
    registration = decode_broker(data)
    assert registration.endpoints == endpoints
    assert registration.jmx_port == 9999


@pytest.mark.parametrize(
    ("decode", "data", "message"),
    [
        (tree.decode_cluster_id, b"", "/cluster/id: no JSON"),
        (tree.decode_cluster_id, b"\xff\xfe", "/cluster/id: no JSON"),
        (tree.decode_cluster_id, b"[" * 100_000, "/cluster/id: no JSON"),
        (tree.decode_cluster_id, b"[]", "/cluster/id: no JSON object"),
        (tree.decode_cluster_id, b"{}", "/cluster/id: id is missing"),
        (tree.decode_cluster_id, b'{"id":1}', "/cluster/id: id is no text"),
        (tree.decode_controller, b'{"brokerid":true}', "/controller: brokerid is no number"),
        (tree.decode_controller, b'{"brokerid":2147483648}', "/controller: brokerid is no number"),
        (tree.decode_controller_epoch, b"-1", "/controller_epoch: b'-1' is no number"),
        (tree.decode_controller_epoch, b"", "is no number"),
        (decode_topic, b'{"partitions":[]}', "/brokers/topics/t: partitions is no object"),
        (decode_topic, b'{"partitions":{"x":[1]}}', "partitions: 'x' is no partition"),
        (decode_topic, b'{"partitions":{"0":["1"]}}', "partitions is no list of broker ids"),
        (decode_topic, b'{"topic_id":"short"}', "topic_id 'short' is no id"),
        (decode_topic, b'{"topic_id":"!!!!!!!!!!!!!!!!!!!!!!"}', "is no id"),
        (decode_state, b'{"leader":1}', "/brokers/topics/t/partitions/0/state: leader_epoch is missing"),
        (decode_config, b'{"config":[1]}', "/config/topics/t: config is no object of texts"),
        (decode_isr_change, b'{"partitions":[1]}', "without topic and partition"),
        (
            tree.decode_producer_id_block,
            b'{"broker":1,"block_start":"x","block_end":"1"}',
            "block_start is no number",
        ),
        (tree.decode_reassignment, b'{"partitions":[{"topic":"t","partition":0}]}', "replicas is no list"),
        (
            partial(tree.decode_partition_state, TopicPartition("t", 0)),
            b'{"leader":1,"leader_epoch":0,"isr":[1],"controller_epoch":1,"leader_recovery_state":300}',
            "leader_recovery_state 300 is not known",
        ),
        (tree.decode_features, b'{"status":2,"version":2,"features":{}}', "/feature: status"),
        (
            tree.decode_features,
            b'{"status":1,"version":2,"features":{"a":{}}}',
            "feature a has no max_version_level",
        ),
        (
            decode_broker,
            b'{"version":5,"jmx_port":1,"timestamp":"1","endpoints":[],"features":{"f":{"min_version":1}}}',
            "/brokers/ids/1: feature f has no min_version and max_version",
        ),
        (decode_broker, b'{"version":0,"jmx_port":1}', "/brokers/ids/1: version 0 is not known"),
        (decode_broker, b'{"version":5,"jmx_port":1,"timestamp":"1"}', "endpoints is missing"),
        (decode_broker, b'{"version":5,"jmx_port":1,"timestamp":"1","endpoints":["nowhere"]}', "endpoints: "),
        (decode_broker, b'{"version":5,"jmx_port":1,"timestamp":"1","endpoints":[1]}', "endpoints: "),
        (
            decode_broker,
            b'{"version":5,"jmx_port":1,"timestamp":"1","endpoints":[],"listener_security_protocol_map":[]}',
            "endpoints: ",
        ),
        (decode_broker, b'{"version":5,"features":[1]}', "features is no object"),
    ],
)
def test_bad_bytes_name_the_node_and_what_is_wrong(
    decode: Callable[[bytes], object], data: bytes, message: str
) -> None:
    with pytest.raises(MalformedNode) as caught:
        decode(data)
    assert message in str(caught.value)


def test_paths_are_kafkas() -> None:
    assert tree.partition_state_path(PARTITION) == "/brokers/topics/t/partitions/0/state"
    assert tree.broker_path(3) == "/brokers/ids/3"
    assert tree.config_path("brokers", tree.DEFAULT_ENTITY) == "/config/brokers/<default>"
    assert tree.delete_topic_path("t") == "/admin/delete_topics/t"
    # Kafka's, and those for settings of groups and of client metrics, which came after ZooKeeper, and their notices.
    assert len(set(tree.PERSISTENT_PATHS)) == 17


@pytest.mark.parametrize(
    ("name", "node"),
    [
        ("CN=a b*~é/ü,_-.+%", "CN%3Da%20b%2A%7E%C3%A9%2F%C3%BC%2C_-.%2B%25"),
        ("plain-1.2_3", "plain-1.2_3"),
        ("<default>", "<default>"),
    ],
)
def test_names_are_made_safe_as_kafka_does(name: str, node: str) -> None:
    assert tree.sanitize(name) == node
    assert tree.desanitize(node) == name
