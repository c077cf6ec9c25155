"""Arguments of the wrong type are named, with what came and what is wanted; what is meant clearly is taken."""

from __future__ import annotations

import asyncio
import inspect
import re
from typing import Any, cast

import pytest

import barnabas
import barnabas.aio
import barnabas.testing
from barnabas.errors import InvalidRequest

NOBODY = "127.0.0.1:1"
REFUSALS = (TypeError, ValueError, InvalidRequest)
# What a call needs besides the argument that is wrong.
OTHERS: dict[str, Any] = {
    "before": {("t", 0): 0},
    "changes": {},
    "counts": {"t": 2},
    "group": "g",
    "levels": {},
    "mechanism": "scram-sha-256",
    "moves": {},
    "offsets": {},
    "partition": ("t", 0),
    "partitions": [("t", 0)],
    "password": "secret",
    "producer_epoch": 0,
    "producer_id": 0,
    "resources": ("topic", "t"),
    "start_offset": 0,
    "topics": "t",
    "transactional_ids": "x",
    "user": "ann",
}
TOPIC = barnabas.ConfigResource(barnabas.ResourceType.TOPIC, "t")
NO_PARTITION = r"takes TopicPartition\('orders', 0\) or \('orders', 0\), and not"
# The method, the argument, what is wrong with it, and words of the error.
TABLE: list[tuple[str, str, Any, str]] = [
    ("abort_hanging_transaction", "partition", "t", f"partition {NO_PARTITION} 't'"),
    ("abort_hanging_transaction", "start_offset", "5", "start_offset takes a whole number, and not '5'"),
    ("abort_transaction", "partition", ("t", "0"), rf"partition {NO_PARTITION} \('t', '0'\)"),
    ("abort_transaction", "producer_id", "5", "producer_id takes a whole number, and not '5'"),
    ("abort_transaction", "producer_epoch", None, "producer_epoch takes a whole number, and not None"),
    ("abort_transaction", "coordinator_epoch", 1.5, "coordinator_epoch takes a whole number, and not 1.5"),
    (
        "alter_configs",
        "changes",
        {"t": {}},
        r"changes takes ConfigResource\(.*\('topic', 'orders'\), and not 't'",
    ),
    ("alter_configs", "changes", [TOPIC], r"changes takes a mapping, such as .*'retention.ms'"),
    ("alter_configs", "changes", {TOPIC: "retention.ms"}, "takes a mapping, .* and not 'retention.ms'"),
    (
        "alter_configs",
        "changes",
        {TOPIC: {"a": barnabas.ConfigChange(operation=cast(Any, "add"), value="b")}},
        "the operation on a takes ConfigOperation or one of its names .*append, subtract.* and not 'add'",
    ),
    ("alter_group_offsets", "group", 5, "group takes a text, and not 5"),
    ("alter_group_offsets", "offsets", [("t", 0)], r"offsets takes a mapping, such as {\('orders', 0\): 5}"),
    (
        "alter_group_offsets",
        "offsets",
        {("t", 0): -1},
        r"offsets, for \('t', 0\), takes an offset of 0 or more",
    ),
    ("alter_group_offsets", "offsets", {("t", 0): "5"}, "takes a whole number, and not '5'"),
    ("alter_group_offsets", "offsets", {"t": 5}, f"offsets {NO_PARTITION} 't'"),
    (
        "alter_quotas",
        "changes",
        {"ann": {"producer_byte_rate": 5}},
        "changes takes entities as pairs .* 'ann'",
    ),
    ("alter_quotas", "changes", {(("user", "ann"),): 5}, "takes a mapping, such as {'producer_byte_rate'"),
    ("alter_quotas", "changes", {(("user", "ann"),): {"producer_byte_rate": "5"}}, "takes a number, .* '5'"),
    ("alter_reassignments", "replicas", [("t", 0)], r"replicas takes a mapping, such as {\('orders', 0\)"),
    ("alter_reassignments", "replicas", {("t", 0): "1"}, r"takes a list, such as \[1, 2\], and not '1'"),
    ("alter_replica_log_dirs", "moves", [("t", 0, 1)], "moves takes a mapping"),
    (
        "alter_replica_log_dirs",
        "moves",
        {("t", 0): "/x"},
        r"moves takes TopicPartitionReplica\('orders', 0, 1\)",
    ),
    ("create_acls", "acls", None, r"acls takes a list, such as \[Acl\(.* and not None"),
    ("create_acls", "acls", ["User:ann"], r"acls takes Acl\('User:ann', 'read'.* and not 'User:ann'"),
    (
        "create_acls",
        "acls",
        barnabas.Acl("User:ann", cast(Any, "reed"), barnabas.AclResourceType.TOPIC, "t"),
        "operation of Acl takes AclOperation or one of its names .* and not 'reed'",
    ),
    ("create_partitions", "counts", "t", "counts takes a mapping, such as {'orders': 6}, and not 't'"),
    ("create_partitions", "counts", {"t": "6"}, "counts, for 't', takes a whole number, and not '6'"),
    ("create_partitions", "assignments", {"t": 1}, r"assignments, for 't', takes a list, such as \[\[1, 2\]"),
    ("create_topics", "topics", 5, r"takes names, and not 5: such as \['orders'\]"),
    (
        "create_topics",
        "topics",
        barnabas.NewTopic("t", cast(Any, "3")),
        "partitions='3' .* must be whole numbers",
    ),
    (
        "create_topics",
        "topics",
        barnabas.NewTopic("t", configs=cast(Any, ["retention.ms"])),
        "configs of topic 't' takes a mapping",
    ),
    (
        "create_topics",
        "topics",
        barnabas.NewTopic("t", assignment=cast(Any, [[1]])),
        "assignment of topic 't' takes a mapping",
    ),
    ("create_topics", "partitions", "3", "partitions='3' .* must be whole numbers"),
    ("create_topics", "replication_factor", 1.0, "replication_factor=1.0 must be whole numbers"),
    (
        "create_topics",
        "configs",
        ["retention.ms"],
        r"configs takes a mapping, such as .*not \['retention.ms'\]",
    ),
    ("delete_acls", "selected", None, r"selected takes a list, such as \[AclFilter\("),
    ("delete_group_offsets", "group", None, "group takes a text, and not None"),
    (
        "delete_group_offsets",
        "partitions",
        "t",
        r"partitions takes a list, such as \[\('orders', 0\)\], and not 't'",
    ),
    ("delete_groups", "groups", 5, "5 is no name of a group"),
    ("delete_records", "before", [("t", 0)], r"before takes a mapping, such as {\('orders', 0\): 5}"),
    ("delete_records", "before", {("t", 0): 1.5}, "takes a whole number, and not 1.5"),
    ("delete_scram_password", "user", 5, "user takes a text, and not 5"),
    (
        "delete_scram_password",
        "mechanism",
        "md5",
        "mechanism takes ScramMechanism or one of its names .*scram_sha_256",
    ),
    ("delete_topics", "topics", None, "None is no name of a topic"),
    ("describe_acls", "selected", "User:ann", r"selected takes a list, such as \[AclFilter\('User:ann'\)"),
    (
        "describe_acls",
        "selected",
        barnabas.AclFilter(operation=cast(Any, 99)),
        "operation of AclFilter takes AclOp",
    ),
    ("describe_broker_features", "brokers", "1", r"brokers takes a list, such as \[1, 2\], and not '1'"),
    (
        "describe_configs",
        "resources",
        "t",
        r"resources takes a list, such as \[\('topic', 'orders'\)\], and not 't'",
    ),
    (
        "describe_configs",
        "resources",
        barnabas.ConfigResource(cast(Any, "topics"), "t"),
        "resources takes ResourceType or one of its names .*topic, broker.*, and not 'topics'",
    ),
    ("describe_configs", "names", 5, r"names takes a list, such as \['retention.ms'\], and not 5"),
    ("describe_groups", "groups", None, "None is no name of a group"),
    ("describe_log_dirs", "brokers", ["1"], "brokers takes a whole number, and not '1'"),
    ("describe_log_dirs", "partitions", ["t"], f"partitions {NO_PARTITION} 't'"),
    ("describe_producers", "partitions", 5, "partitions takes a list"),
    ("describe_producers", "broker_id", "1", "broker_id takes a whole number, and not '1'"),
    ("describe_quotas", "entity", "ann", "entity takes a mapping, such as {'user': 'ann'}, and not 'ann'"),
    ("describe_scram_users", "users", 5, r"users takes a list, such as \['ann'\], and not 5"),
    ("describe_topics", "topics", 5, "5 is no name of a topic"),
    ("describe_transactions", "transactional_ids", 5, "5 is no name of a transactional id"),
    ("elect_leaders", "partitions", 5, "partitions takes a list"),
    (
        "elect_leaders",
        "election",
        "best",
        "election takes ElectionType or one of its names .preferred, unclean.",
    ),
    ("fence_producers", "transactional_ids", [5], "5 is no name of a transactional id"),
    ("list_config_resources", "types", "topics", "types takes ResourceType .* and not 'topics'"),
    ("list_group_offsets", "group", ["g"], r"group takes a text, and not \['g'\]"),
    ("list_group_offsets", "partitions", [5], f"partitions {NO_PARTITION} 5"),
    ("list_groups", "states", 5, r"states takes a list, such as \['Stable'\], and not 5"),
    ("list_groups", "types", ["classi"], "types takes GroupType .*classic, consumer.* and not 'classi'"),
    ("list_offsets", "partitions", ("t", "0"), f"partitions {NO_PARTITION}"),
    (
        "list_offsets",
        "partitions",
        {("t", 0): "first"},
        "takes OffsetSpec or one of its names .* and not 'first'",
    ),
    ("list_offsets", "partitions", {("t", 0): 1.5}, "takes a whole number, and not 1.5"),
    ("list_offsets", "isolation", "committed", "isolation takes IsolationLevel .* and not 'committed'"),
    ("list_reassignments", "partitions", 5, "partitions takes a list"),
    ("list_replica_offsets", "replicas", [("t", 0)], "replicas takes TopicPartitionReplica"),
    ("list_transactions", "states", 5, "states takes a list"),
    ("list_transactions", "producer_ids", "5", "producer_ids takes a list"),
    ("list_transactions", "running_longer_than_ms", "5", "running_longer_than_ms takes a whole number"),
    ("list_transactions", "pattern", re.compile("x"), "pattern takes a text"),
    ("remove_members", "group", 5, "group takes a text, and not 5"),
    ("remove_members", "members", [5], "members takes a text, and not 5"),
    ("remove_members", "reason", 5, "reason takes a text, and not 5"),
    ("set_scram_password", "user", None, "user takes a text, and not None"),
    ("set_scram_password", "password", b"secret", "password takes a text, and not bytes$"),
    ("set_scram_password", "mechanism", 9, "mechanism takes ScramMechanism .* and not 9"),
    ("set_scram_password", "iterations", "9", "iterations takes a whole number, and not '9'"),
    ("update_features", "levels", ["metadata.version"], "levels takes a mapping"),
    ("update_features", "levels", {"metadata.version": "25"}, "takes a whole number, and not '25'"),
    ("update_features", "upgrade", "down", "upgrade takes UpgradeType .* and not 'down'"),
]


def checked(client: type) -> set[tuple[str, str]]:
    """The methods and arguments that may be wrong; a flag is what Python takes for true or false."""
    return {
        (name, argument)
        for name in dir(client)
        if not name.startswith("_")
        for argument, parameter in inspect.signature(getattr(client, name)).parameters.items()
        if argument not in ("self", "timeout_ms") and parameter.annotation not in ("bool", bool)
    }


def test_the_table_has_every_argument() -> None:
    assert {(method, argument) for method, argument, _, _ in TABLE} == checked(barnabas.Admin)
    assert checked(barnabas.Admin) == checked(barnabas.aio.Admin)


def keywords_of(method: str, argument: str, wrong: Any) -> dict[str, Any]:
    parameters = inspect.signature(getattr(barnabas.Admin, method)).parameters.values()
    needed = [each.name for each in parameters if each.name != "self" and each.default is each.empty]
    return {**{name: OTHERS[name] for name in needed if name != argument}, argument: wrong}


@pytest.mark.parametrize(
    ("method", "argument", "wrong", "words"),
    TABLE,
    ids=[f"{row[0]}-{row[1]}-{i}" for i, row in enumerate(TABLE)],
)
def test_what_is_wrong_is_named(method: str, argument: str, wrong: Any, words: str) -> None:
    keywords = keywords_of(method, argument, wrong)
    with (
        barnabas.Admin(bootstrap_servers=NOBODY, default_api_timeout_ms=1000) as admin,
        pytest.raises(REFUSALS, match=words) as raised,
    ):
        getattr(admin, method)(**keywords)
    assert "secret" not in str(raised.value)


def test_what_is_wrong_is_named_in_asyncio() -> None:
    async def test() -> None:
        async with barnabas.aio.Admin(bootstrap_servers=NOBODY, default_api_timeout_ms=1000) as admin:
            for method, argument, wrong, words in TABLE:
                with pytest.raises(REFUSALS, match=words):
                    await getattr(admin, method)(**keywords_of(method, argument, wrong))

    asyncio.run(test())


def test_names_of_arguments_in_other_clients_have_a_hint() -> None:
    wrong: Any = barnabas
    with pytest.raises(TypeError, match=r"NewTopic\(\) has no argument num_partitions: use partitions"):
        wrong.NewTopic("n", num_partitions=3)
    with barnabas.Admin(bootstrap_servers=NOBODY, default_api_timeout_ms=1000) as admin:
        loose: Any = admin
        with pytest.raises(
            TypeError, match=r"create_topics\(\) has no argument num_partitions: use partitions"
        ):
            loose.create_topics("n", num_partitions=3)
        with pytest.raises(
            TypeError, match=r"list_topics\(\) has no argument request_timeout_ms: use timeout_ms"
        ):
            loose.list_topics(request_timeout_ms=3)
        with pytest.raises(TypeError, match="unexpected keyword argument 'nosuch'"):
            loose.list_topics(nosuch=3)


def test_a_new_topic_by_position() -> None:
    assert barnabas.NewTopic("n", 3, 1) == barnabas.NewTopic(name="n", partitions=3, replication_factor=1)
    assert list(inspect.signature(barnabas.NewTopic).parameters)[:3] == [
        "name",
        "partitions",
        "replication_factor",
    ]
    with pytest.raises(TypeError):
        cast(Any, barnabas.NewTopic)("n", 3, 1, {0: [1]})


def test_what_is_clear_is_taken() -> None:
    with barnabas.testing.Broker() as broker, barnabas.Admin(bootstrap_servers=broker.bootstrap) as admin:
        loose: Any = admin
        assert admin.create_topics([barnabas.NewTopic("t", 3, 1)])["t"].partitions == 3
        partition = barnabas.TopicPartition("t", 0)
        for single in (partition, ("t", 0), [("t", 0)], {partition}):
            assert loose.list_offsets(single)[partition].offset == 0
        for spec in ("earliest", "LATEST", "max-timestamp", barnabas.OffsetSpec.EARLIEST, -1):
            assert partition in loose.list_offsets({partition: spec}, isolation="read-committed")
        topic = barnabas.ConfigResource(barnabas.ResourceType.TOPIC, "t")
        for resource in (topic, ("topic", "t"), [("TOPIC", "t")], (2, "t")):
            found = loose.describe_configs(resource, names="retention.ms")
            assert {each: list(entries) for each, entries in found.items()} == {topic: ["retention.ms"]}
        (broker_id,) = (node.id for node in admin.describe_cluster().nodes)
        assert loose.describe_configs(("broker", broker_id))
        assert list(loose.describe_log_dirs(broker_id)) == [broker_id]
        loose.alter_configs({("topic", "t"): {"retention.ms": 1000}})
        assert loose.elect_leaders(partition, election="preferred") == {partition: False}
        assert loose.list_groups(states="Stable", types="classic") == []
        loose.set_scram_password("ann", "secret", mechanism="SCRAM-SHA-512")
        assert list(loose.describe_scram_users("ann")) == ["ann"]
        loose.alter_quotas({("user", "ann"): {"producer_byte_rate": 1000}})
        assert admin.describe_quotas({"user": "ann"}) == {(("user", "ann"),): {"producer_byte_rate": 1000.0}}
        committed = barnabas.OffsetAndMetadata(0, "by hand")
        loose.alter_group_offsets("g", {("t", 0): committed})
        assert admin.list_group_offsets("g")[partition].metadata == "by hand"
