"""Settings of topics, seen and changed by clients of a running broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from barnabas import errors
from barnabas.broker.waiting.turns import AT_ONCE
from barnabas.coordination.writing.cluster_writer import ClusterWriter, Edit
from barnabas.errors import KafkaError
from barnabas.model import TopicPartition
from barnabas.protocol.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from barnabas.protocol.messages.incremental_alter_configs_request import IncrementalAlterConfigsRequest
from tests.broker.config_requests import (
    APPEND,
    BROKER,
    CLIENT_METRICS,
    DELETE,
    GROUP,
    SET,
    SUBTRACT,
    TOPIC,
    alter,
    describe,
    describe_result,
    incremental,
    incremental_resource,
)
from tests.broker.raw_client import RawClient
from tests.broker.record_requests import batch, create_topic, produce
from tests.broker.running import RunningBroker

TOPIC_CONFIG, STATIC_BROKER_CONFIG, DEFAULT_CONFIG = 1, 4, 5
BOOLEAN_TYPE, LONG_TYPE, LIST_TYPE = 1, 5, 7


def own_settings(client: RawClient, topic: str) -> dict[str, str]:
    return {
        entry.name: entry.value
        for entry in describe(client, TOPIC, topic).values()
        if entry.config_source == TOPIC_CONFIG
    }


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_describe_configs(client: RawClient, version: int) -> None:
    topic = f"described-v{version}"
    create_topic(client, topic, retention_ms="1000")
    options = {} if version == 0 else {"include_synonyms": True}
    entries = describe(client, TOPIC, topic, version=version, **options)
    assert len(entries) > 30
    entry = entries["retention.ms"]
    assert (entry.value, entry.read_only, entry.is_sensitive) == ("1000", False, False)
    if version == 0:
        assert not entry.is_default
        assert entries["segment.bytes"].is_default
        return
    assert entry.config_source == TOPIC_CONFIG
    assert [(each.name, each.value, each.source) for each in entry.synonyms] == [
        ("retention.ms", "1000", TOPIC_CONFIG)
    ]
    assert entries["segment.bytes"].config_source == DEFAULT_CONFIG
    assert [(each.name, each.value, each.source) for each in entries["segment.bytes"].synonyms] == [
        ("log.segment.bytes", "1073741824", DEFAULT_CONFIG)
    ]
    if version >= 3:
        types = {name: entry.config_type for name, entry in entries.items()}
        assert types["retention.ms"] == LONG_TYPE
        assert types["cleanup.policy"] == LIST_TYPE
        assert types["preallocate"] == BOOLEAN_TYPE


def test_describing_some_settings_of_several_resources(client: RawClient) -> None:
    create_topic(client, "some", cleanup_policy="compact")
    resources = [
        DescribeConfigsResource(
            resource_type=TOPIC, resource_name="some", configuration_keys=["cleanup.policy", "no.such.name"]
        ),
        DescribeConfigsResource(resource_type=TOPIC, resource_name="some", configuration_keys=[]),
        DescribeConfigsResource(resource_type=TOPIC, resource_name="absent", configuration_keys=None),
    ]
    some, everything, absent = client.ask(
        "DescribeConfigs", 4, DescribeConfigsRequest(resources=resources)
    ).results
    assert [(entry.name, entry.value) for entry in some.configs] == [("cleanup.policy", "compact")]
    assert some.configs[0].synonyms == []
    assert len(everything.configs) > 30
    assert absent.error_code == errors.UnknownTopicOrPartition.code
    assert absent.configs == []


def test_documentation_is_given_to_whom_asks(client: RawClient) -> None:
    create_topic(client, "documented")
    plain = describe(client, TOPIC, "documented", "compression.type")["compression.type"]
    assert plain.documentation is None
    asked = describe(client, TOPIC, "documented", "compression.type", include_documentation=True)
    assert "snappy" in asked["compression.type"].documentation


@pytest.mark.parametrize(
    ("kind", "name", "code", "message"),
    [
        (TOPIC, "no/name", errors.InvalidTopicException.code, "no/name"),
        (BROKER, "x", errors.InvalidRequest.code, "Broker id must be an integer, but it is: x"),
        (BROKER, "77", errors.InvalidRequest.code, "but received 77"),
        (8, "", errors.InvalidRequest.code, "Broker id must not be empty"),
        (CLIENT_METRICS, "", errors.InvalidRequest.code, "must not be empty"),
        (GROUP, "", errors.InvalidRequest.code, "Group name must not be empty"),
        (3, "what", errors.InvalidRequest.code, "Unexpected resource type UNKNOWN for resource what"),
    ],
)
def test_what_cannot_be_described(client: RawClient, kind: int, name: str, code: int, message: str) -> None:
    result = describe_result(client, kind, name)
    assert result.error_code == code
    assert message in result.error_message
    assert result.configs == []


def test_groups_have_the_brokers_settings_and_subscriptions_defaults(client: RawClient) -> None:
    entries = describe(client, GROUP, "readers", include_synonyms=True)
    assert entries["consumer.session.timeout.ms"].value == "45000"
    assert [(each.name, each.source) for each in entries["consumer.session.timeout.ms"].synonyms] == [
        ("group.consumer.session.timeout.ms", DEFAULT_CONFIG)
    ]
    assert entries["consumer.heartbeat.interval.ms"].config_source == DEFAULT_CONFIG
    entries = describe(client, CLIENT_METRICS, "subscription", include_synonyms=True)
    assert [(each.name, each.value, each.config_source, each.synonyms) for each in entries.values()] == [
        ("interval.ms", "300000", DEFAULT_CONFIG, []),
        ("match", "", DEFAULT_CONFIG, []),
        ("metrics", "", DEFAULT_CONFIG, []),
    ]


@pytest.mark.parametrize("version", range(3))
def test_every_version_of_alter_configs_replaces_all(client: RawClient, version: int) -> None:
    topic = f"replaced-v{version}"
    create_topic(client, topic, retention_ms="1000", segment_bytes="5000")
    assert alter(client, TOPIC, topic, {"segment.bytes": "6000"}, version=version) == (0, None)
    assert own_settings(client, topic) == {"segment.bytes": "6000"}
    assert alter(client, TOPIC, topic, {}, version=version, validate_only=True) == (0, None)
    assert own_settings(client, topic) == {"segment.bytes": "6000"}
    assert alter(client, TOPIC, topic, {}, version=version) == (0, None)
    assert own_settings(client, topic) == {}


@pytest.mark.parametrize("version", range(2))
def test_every_version_of_incremental_alter_configs(client: RawClient, version: int) -> None:
    topic = f"changed-v{version}"
    create_topic(client, topic, retention_ms="1000")

    def change(*changes: tuple[str, int, str | None], validate_only: bool = False) -> None:
        assert incremental(client, TOPIC, topic, *changes, version=version, validate_only=validate_only) == (
            0,
            None,
        )

    change(("segment.bytes", SET, "6000"), ("cleanup.policy", APPEND, "compact"))
    assert own_settings(client, topic) == {
        "retention.ms": "1000",
        "segment.bytes": "6000",
        # What a list has by default is its beginning.
        "cleanup.policy": "delete,compact",
    }
    change(("cleanup.policy", APPEND, "compact"), ("retention.ms", DELETE, None), ("flush.ms", DELETE, None))
    change(("cleanup.policy", SUBTRACT, "delete,unknown"))
    assert own_settings(client, topic) == {"segment.bytes": "6000", "cleanup.policy": "compact"}
    change(("segment.bytes", DELETE, None), validate_only=True)
    assert own_settings(client, topic)["segment.bytes"] == "6000"


INVALID_CONFIG, INVALID_REQUEST = errors.InvalidConfig.code, errors.InvalidRequest.code


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ([("no.such.setting", SET, "1")], INVALID_CONFIG, "no.such.setting"),
        ([("retention.ms", SET, "long")], INVALID_CONFIG, "retention.ms: Not a number of type LONG"),
        ([("min.compaction.lag.ms", SET, "9"), ("max.compaction.lag.ms", SET, "8")], INVALID_CONFIG, "max"),
        (
            [("segment.bytes", APPEND, "1")],
            INVALID_CONFIG,
            "Can't APPEND to key segment.bytes because its type is not LIST.",
        ),
        ([("retention.ms", SET, None)], INVALID_REQUEST, "Null value not supported for : retention.ms"),
        (
            [("retention.ms", SET, "1"), ("retention.ms", DELETE, None)],
            INVALID_REQUEST,
            "Error due to duplicate config keys",
        ),
        ([("retention.ms", 9, "1")], INVALID_REQUEST, "Unknown operations type 9"),
        (
            [("remote.storage.enable", SET, "true")],
            INVALID_CONFIG,
            "Tiered Storage functionality is disabled",
        ),
    ],
)
def test_a_change_that_is_wrong_changes_nothing(
    client: RawClient,
    request: pytest.FixtureRequest,
    changes: list[tuple[str, int, str | None]],
    code: int,
    message: str,
) -> None:
    topic = f"wrong-{request.node.callspec.indices['changes']}"
    create_topic(client, topic, retention_ms="1000")
    answer = incremental(client, TOPIC, topic, ("flush.ms", SET, "5000"), *changes)
    assert answer[0] == code
    assert message in str(answer[1])
    assert own_settings(client, topic) == {"retention.ms": "1000"}


@pytest.mark.parametrize(
    ("kind", "name", "code", "message"),
    [
        (TOPIC, "absent", errors.UnknownTopicOrPartition.code, "The topic 'absent' does not exist."),
        (TOPIC, "", INVALID_REQUEST, "Default topic resources are not allowed."),
        (TOPIC, "no/name", errors.InvalidTopicException.code, "no/name"),
        (GROUP, "g", INVALID_CONFIG, "Unknown group config name: retention.ms"),
        (GROUP, "", INVALID_REQUEST, "Default group resources are not allowed."),
        (CLIENT_METRICS, "m", INVALID_REQUEST, "Unknown client metrics configuration: retention.ms"),
        (3, "what", INVALID_REQUEST, "Unknown resource type 3"),
    ],
)
def test_what_cannot_be_altered(client: RawClient, kind: int, name: str, code: int, message: str) -> None:
    for answer in (
        incremental(client, kind, name, ("retention.ms", SET, "1")),
        alter(client, kind, name, {"retention.ms": "1"}),
    ):
        assert answer[0] == code
        assert message in str(answer[1])


def test_a_null_in_alter_configs(client: RawClient) -> None:
    create_topic(client, "nulls")
    code, message = alter(client, TOPIC, "nulls", {"retention.ms": None})
    assert (code, message) == (INVALID_REQUEST, "Null value not supported for : retention.ms")


def test_each_resource_stands_for_itself(client: RawClient) -> None:
    for topic in ("several-a", "several-b", "several-c"):
        create_topic(client, topic)
    change = ("retention.ms", SET, "7")
    request = IncrementalAlterConfigsRequest(
        resources=[
            incremental_resource(TOPIC, "several-a", change),
            incremental_resource(TOPIC, "several-b", ("retention.ms", SET, "x")),
            incremental_resource(TOPIC, "several-c", change),
            incremental_resource(TOPIC, "several-c", change),
        ]
    )
    answers: list[Any] = client.ask("IncrementalAlterConfigs", 1, request).responses
    assert [answer.error_code for answer in answers] == [0, INVALID_CONFIG, INVALID_REQUEST, INVALID_REQUEST]
    assert answers[2].error_message == answers[3].error_message == "Each resource must appear at most once."
    assert own_settings(client, "several-a") == {"retention.ms": "7"}
    assert own_settings(client, "several-b") == own_settings(client, "several-c") == {}


def test_many_resources_are_altered_in_parts(client: RawClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is validated with all its settings: other requests run between one part and the next."""
    parts: list[int] = []
    alter_groups = ClusterWriter.alter_group_configs

    async def note_part(
        writer: ClusterWriter, changes: Mapping[str, Edit[str]], *, validate_only: bool = False
    ) -> dict[str, KafkaError | None]:
        parts.append(len(changes))
        return await alter_groups(writer, changes, validate_only=validate_only)

    monkeypatch.setattr(ClusterWriter, "alter_group_configs", note_part)
    count = 3 * AT_ONCE + 5
    name = "consumer.session.timeout.ms"
    resources = [
        incremental_resource(GROUP, f"part-{number}", (name, SET, "x" if number % 10 == 0 else "50000"))
        for number in range(count)
    ]
    answers = client.ask(
        "IncrementalAlterConfigs", 1, IncrementalAlterConfigsRequest(resources=resources)
    ).responses
    assert [(answer.resource_name, answer.error_code) for answer in answers] == [
        (f"part-{number}", INVALID_CONFIG if number % 10 == 0 else 0) for number in range(count)
    ]
    assert parts == [AT_ONCE] * 3 + [5]
    assert describe(client, GROUP, f"part-{count - 1}")[name].value == "50000"


def test_an_open_log_follows_its_topics_settings(broker: RunningBroker, client: RawClient) -> None:
    create_topic(client, "followed", partitions=2)
    large = batch(b"x" * 2_000)
    assert produce(client, "followed", large).error_code == 0
    incremental(client, TOPIC, "followed", ("max.message.bytes", SET, "1000"))
    for partition in range(2):
        answer = produce(client, "followed", large, partition=partition)
        assert answer.error_code == errors.MessageTooLarge.code
    incremental(client, TOPIC, "followed", ("max.message.bytes", DELETE, None))
    assert produce(client, "followed", large).error_code == 0
    incremental(client, TOPIC, "followed", ("segment.bytes", SET, "2500"))
    log = broker.server.broker.log_manager.log(TopicPartition("followed", 0))
    assert log is not None
    before = len(log.segments)
    assert produce(client, "followed", large).error_code == 0
    assert len(log.segments) == before + 1


def test_settings_are_there_after_a_restart(tmp_path: Any) -> None:
    with RunningBroker(tmp_path) as broker, broker.client() as client:
        create_topic(client, "kept")
        incremental(client, TOPIC, "kept", ("max.message.bytes", SET, "1000"))
        incremental(client, BROKER, "", ("log.retention.ms", SET, "12345"))
    with RunningBroker(tmp_path) as broker, broker.client() as client:
        assert own_settings(client, "kept") == {"max.message.bytes": "1000"}
        assert describe(client, TOPIC, "kept")["retention.ms"].value == "12345"
        assert produce(client, "kept", batch(b"x" * 2_000)).error_code == errors.MessageTooLarge.code
        log = broker.server.broker.log_manager.log(TopicPartition("kept", 0))
        assert log is not None
        assert log.config.retention_ms == 12345
