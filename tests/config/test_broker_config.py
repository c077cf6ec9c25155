"""A broker's configuration: files of Apache Kafka, overrides, defaults, what is refused, and where values come from."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.config.broker_config import (
    HONOURED_ATTRIBUTES,
    BrokerConfig,
    is_honoured,
    parse_overrides,
    validate_dynamic,
    warnings_about,
)
from barnabas.config.broker_settings import OUR_DEFAULTS, TOPIC_SYNONYMS, broker_settings
from barnabas.config.definition import InvalidSetting, Setting, SettingType, to_text
from barnabas.config.describe import ConfigSource, describe_broker, describe_cluster_default, describe_topic
from barnabas.config.listeners import SecurityProtocol
from barnabas.config.log_config import LONG_MAX, TOPIC_SETTINGS, LogConfig
from barnabas.config.properties import parse_properties
from barnabas.errors import InvalidConfig

ZOOKEEPER_FILE = """
broker.id=0
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/var/lib/kafka
num.partitions=3
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.retention.check.interval.ms=300000
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=18000
group.initial.rebalance.delay.ms=0
"""
KRAFT_FILE = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
share.coordinator.state.topic.replication.factor=1
log.segment.bytes=1073741824
"""


def config(text: str = "", **more: str) -> BrokerConfig:
    return BrokerConfig(
        {**parse_properties(text), **{name.replace("_", "."): value for name, value in more.items()}}
    )


def test_no_file_listens_on_9092_and_keeps_data_beside() -> None:
    broker = BrokerConfig()
    assert [str(each) for each in broker.endpoints] == ["PLAINTEXT://:9092"]
    assert broker.log_dirs == ("./barnabas-data",)
    assert broker.broker_id == -1
    assert broker.log_defaults == LogConfig()
    assert broker.inter_broker_endpoint.port == 9092


def test_a_file_of_zookeeper_times_starts_us() -> None:
    broker = config(ZOOKEEPER_FILE)
    assert (broker.broker_id, broker.node_id) == (0, 0)
    assert broker.log_dirs == ("/var/lib/kafka",)
    assert broker.num_partitions == 3
    assert broker.uses_zookeeper
    assert warnings_about(broker.static) == [
        "these settings of Apache Kafka have no effect here: num.io.threads, num.network.threads"
    ]


def test_settings_of_a_cluster_have_the_defaults_of_kafka() -> None:
    broker = config()
    assert (broker.offsets_topic_num_partitions, broker.transaction_state_log_num_partitions) == (50, 50)
    assert not broker.uses_zookeeper
    assert (broker.zookeeper_session_timeout_ms, broker.zookeeper_connection_timeout_ms) == (18_000, None)
    assert (broker.replica_fetch_wait_max_ms, broker.replica_fetch_max_bytes) == (500, 1 << 20)
    assert (broker.controlled_shutdown_max_retries, broker.controlled_shutdown_retry_backoff_ms) == (3, 5_000)
    assert broker.inter_broker_protocol_version == "3.9-IV0"
    assert broker.leader_replication_throttled_rate == LONG_MAX
    # A KRaft broker may know the ZooKeeper that its cluster has come from.
    assert not config(KRAFT_FILE, zookeeper_connect="localhost:2181").uses_zookeeper


def test_a_combined_kraft_file_starts_us_without_the_controllers_listener() -> None:
    broker = config(KRAFT_FILE)
    assert broker.broker_id == 1
    assert [str(each) for each in broker.endpoints] == ["PLAINTEXT://:9092"]
    assert [str(each) for each in broker.advertised_endpoints] == ["PLAINTEXT://localhost:9092"]


def test_a_kraft_file_without_a_protocol_map_starts_us() -> None:
    broker = config(
        "process.roles=broker,controller\nnode.id=1\nlisteners=PLAINTEXT://:9092,CONTROLLER://:9093\n"
        "controller.listener.names=CONTROLLER\ncontroller.quorum.bootstrap.servers=localhost:9093"
    )
    assert [each.port for each in broker.endpoints] == [9092]


def test_a_file_of_a_controller_alone_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"process\.roles=controller.*leave process\.roles out"):
        config(
            "process.roles=controller\nnode.id=1\nlisteners=CONTROLLER://:9093\ncontroller.listener.names=CONTROLLER"
        )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "num.partitions=0",
            r"Invalid value 0 for configuration num\.partitions: Value must be at least 1",
        ),
        (
            "num.partitions=many",
            r"Invalid value many for configuration num\.partitions: Not a number of type INT",
        ),
        (
            "log.cleanup.policy=keep",
            r"Invalid value keep for configuration log\.cleanup\.policy: String must be one of: compact, delete",
        ),
        ("broker.id=1\nnode.id=2", r"Invalid value 2 for configuration node\.id: .* broker\.id, which is 1"),
        ("broker.id=1001", r"Invalid value 1001 for configuration broker\.id: .* -1\.\.1000"),
        ("broker.id.generation.enable=false", r"Invalid value -1 for configuration broker\.id: .* >=0"),
        ("process.roles=broker", r"Invalid value -1 for configuration node\.id: .* >=0"),
        ("log.dirs=", r"Invalid value  for configuration log\.dirs: .* at least one directory"),
        ("log.dirs=,", r"Invalid value  for configuration log\.dirs: .* at least one directory"),
        ("log.dirs=/a,/a", r"Invalid value /a,/a for configuration log\.dirs: .* each directory once"),
        (
            "listeners=PLAINTEXT//:1",
            r"Invalid value PLAINTEXT//:1 for configuration listeners: .* NAME://host:port",
        ),
        ("listeners=PLAINTEXT://:70000", r"listeners: .* NAME://host:port"),
        ("listeners=PLAINTEXT://:\u0661", r"listeners: .* NAME://host:port"),
        (
            "listeners=INSIDE://:1",
            r"Invalid value INSIDE://:1 for configuration listeners: .* SASL_SSL, PLAINTEXT, SSL, SASL_PLAINTEXT",
        ),
        ("listeners=PLAINTEXT://:1,PLAINTEXT://:2", r"each listener name once"),
        ("listeners=PLAINTEXT://:1\nadvertised.listeners=SSL://a:1", r"advertised\.listeners: .* PLAINTEXT"),
        ("advertised.listeners=PLAINTEXT://0.0.0.0:9092", r"a host that clients can connect to"),
        (
            "inter.broker.listener.name=SSL",
            r"Invalid value SSL for configuration inter\.broker\.listener\.name: .* here PLAINTEXT",
        ),
        (
            "listener.security.protocol.map=A:B",
            r"Invalid value A:B for configuration listener\.security\.protocol\.map: .* SASL_SSL",
        ),
        ("controller.listener.names=PLAINTEXT", r"at least one listener that clients can use"),
        (
            "replica.lag.time.max.ms=499",
            r"Invalid value 499 for configuration replica\.lag\.time\.max\.ms: .* replica\.fetch\.wait\.max\.ms",
        ),
        ("replica.socket.timeout.ms=5", r"at least replica\.fetch\.wait\.max\.ms, which is 500"),
        (
            "inter.broker.listener.name=PLAINTEXT\nsecurity.inter.broker.protocol=PLAINTEXT",
            r"Only one of inter\.broker\.listener\.name and security\.inter\.broker\.protocol should be set",
        ),
        (
            "zookeeper.connect=localhost\ncontrol.plane.listener.name=CONTROL",
            r"Invalid value CONTROL for configuration control\.plane\.listener\.name: .* no value",
        ),
        (
            "zookeeper.connect=localhost\nzookeeper.metadata.migration.enable=true",
            r"zookeeper\.metadata\.migration\.enable takes false only",
        ),
        ("zookeeper.connect=localhost\nzookeeper.session.timeout.ms=0", r"session\.timeout\.ms takes >=1"),
        ("log.retention.hours=0", r"Invalid value 0 for configuration log\.retention\.ms: .* -1"),
        ("log.roll.ms=0", r"Invalid value 0 for configuration log\.roll\.ms: .* >=1"),
        ("log.cleaner.dedupe.buffer.size=1048576", r"more than 1048576 for each of log\.cleaner\.threads=1"),
        (
            "log.cleaner.min.compaction.lag.ms=9\nlog.cleaner.max.compaction.lag.ms=8",
            r"conflict topic config setting min\.compaction\.lag\.ms \(9\) > max\.compaction\.lag\.ms \(8\)",
        ),
        ("group.max.session.timeout.ms=5999", r"at least group\.min\.session\.timeout\.ms, which is 6000"),
        ("offsets.topic.compression.codec=5", r"0 \(none\), 1 \(gzip\)"),
        ("max.connections.per.ip=0", r"0 together with max\.connections\.per\.ip\.overrides"),
        ("max.connections.per.ip.overrides=here", r"pairs of host:number"),
        (
            "log.segment.bytes=13",
            r"Invalid value 13 for configuration log\.segment\.bytes: Value must be at least 1048576",
        ),
        ("delegation.token.secret.key=" + "x" * (1 << 20) + "y", r"at most 1048576 characters"),
    ],
)
def test_a_bad_value_names_the_setting_the_value_and_what_is_allowed(text: str, message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        config(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("log.retention.hours=1", {"retention_ms": 3_600_000}),
        ("log.retention.hours=1\nlog.retention.minutes=2", {"retention_ms": 120_000}),
        ("log.retention.minutes=2\nlog.retention.ms=3", {"retention_ms": 3}),
        ("log.retention.hours=-5", {"retention_ms": -1}),
        ("log.roll.hours=2", {"segment_ms": 7_200_000}),
        ("log.roll.hours=2\nlog.roll.ms=5", {"segment_ms": 5}),
        ("log.roll.jitter.hours=1", {"segment_jitter_ms": 3_600_000}),
        ("log.flush.scheduler.interval.ms=7", {"flush_ms": 7}),
        ("log.flush.scheduler.interval.ms=7\nlog.flush.interval.ms=9", {"flush_ms": 9}),
        ("message.max.bytes=5\nlog.segment.bytes=14", {"max_message_bytes": 5, "segment_bytes": 14}),
        ("log.cleanup.policy=compact,delete", {"cleanup_policy": ("compact", "delete")}),
        ("log.message.format.version=0.10.2", {}),
    ],
)
def test_broker_settings_fill_in_for_a_topics(text: str, expected: dict[str, Any]) -> None:
    assert config(text).log_defaults == LogConfig(**expected)


def test_a_topics_own_settings_win_over_the_brokers() -> None:
    topic = config("log.retention.hours=1").topic_config(
        {"retention.ms": "5", "message.format.version": "0.9.0"}
    )
    assert topic == LogConfig(retention_ms=5)
    assert topic.overridden == {"retention.ms"}


def test_listeners_have_names_hosts_ports_and_protocols() -> None:
    broker = config(
        listeners="inside://[::1]:9000, OUTSIDE://0.0.0.0:9001",
        advertised_listeners="OUTSIDE://kafka.example:443,INSIDE://10.0.0.1:9000",
        listener_security_protocol_map="INSIDE:PLAINTEXT,OUTSIDE:SASL_SSL",
        inter_broker_listener_name="INSIDE",
    )
    assert [(each.listener_name, each.host, each.port) for each in broker.endpoints] == [
        ("INSIDE", "::1", 9000),
        ("OUTSIDE", "0.0.0.0", 9001),
    ]
    assert str(broker.endpoints[0]) == "INSIDE://[::1]:9000"
    assert broker.endpoints[1].security_protocol is SecurityProtocol.SASL_SSL
    assert broker.inter_broker_endpoint.host == "10.0.0.1"


def test_overrides_are_name_and_value() -> None:
    assert parse_overrides(["num.partitions=4", "log.dirs=/a=b", "broker.rack="]) == {
        "num.partitions": "4",
        "log.dirs": "/a=b",
        "broker.rack": "",
    }
    for text in ("num.partitions", "=4"):
        with pytest.raises(InvalidConfig, match="write it as name=value"):
            parse_overrides([text])


def test_an_override_that_nothing_has_is_taken_with_a_warning() -> None:
    overrides = parse_overrides(["num.partition=4"])
    assert BrokerConfig(overrides).num_partitions == 1
    assert warnings_about(overrides) == [
        "there is no setting 'num.partition'; did you mean 'num.partitions'?"
    ]


def test_warnings_name_the_nearest_setting() -> None:
    assert warnings_about(
        {"num.partitons": "2", "confluent.thing": "1", "listener.name.inside.ssl.key.password": "x"}
    ) == [
        "there is no setting 'num.partitons'; did you mean 'num.partitions'?",
        "there is no setting 'confluent.thing'",
    ]
    assert warnings_about({"broker.rack": "${env:RACK}"}) == [
        "broker.rack: the value looks like a reference to a config provider, and is taken as it stands"
    ]
    assert "newest format" in warnings_about({"log.message.format.version": "0.9.0"})[0]


def test_the_limits_of_addresses() -> None:
    broker = config(max_connections_per_ip_overrides="127.0.0.1:200, host:5", max_connections_per_ip="0")
    assert broker.max_connections_by_ip == {"127.0.0.1": 200, "host": 5}


def test_the_strongest_source_wins() -> None:
    broker = config("background.threads=3\nlog.retention.ms=3").with_dynamic(
        default={"background.threads": "4", "log.retention.ms": "4"}, broker={"background.threads": "5"}
    )
    assert broker.background_threads == 5
    assert broker.log_defaults.retention_ms == 4
    assert config("background.threads=3").with_dynamic(default={}, broker={}).background_threads == 3


@pytest.mark.parametrize(
    ("properties", "per_broker", "message"),
    [
        ({"num.partitions": "2"}, True, r"Cannot update these configs dynamically: \[num\.partitions\]"),
        ({"listeners": "PLAINTEXT://:1"}, False, "broker id must be specified"),
        ({"listener.name.inside.ssl.keystore.type": "PEM"}, False, "broker id must be specified"),
        ({"listener.name.inside.plain.sasl.jaas.config": "x"}, False, "broker id must be specified"),
        ({"listener.name.inside.x.sasl.server.callback.handler.class": "x"}, False, "broker id must be"),
        ({"listener.name.inside.my.own": "x"}, False, "broker id must be specified"),
        ({"listener.name.inside.plain.max.connections": "5"}, False, "broker id must be specified"),
        ({"listener.name.inside.connections.max.reauth.ms": "5"}, True, "configs dynamically"),
        ({"listener.name.inside.plain.connections.max.reauth.ms": "abc"}, True, "Invalid value abc"),
        ({"listener.name.inside.max.connections": "many"}, False, "Invalid value many"),
        (
            {"log.retention.ms": "soon"},
            True,
            r"Invalid value soon for configuration log\.retention\.ms: Not a number",
        ),
    ],
)
def test_what_may_not_change_at_run_time(properties: dict[str, str], per_broker: bool, message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        validate_dynamic(properties, per_broker=per_broker)
    validate_dynamic({"log.retention.ms": "5", "my.own": "x"}, per_broker=per_broker)
    for name in ("max.connections", "max.connection.creation.rate", "num.network.threads"):
        validate_dynamic({f"listener.name.inside.{name}": "5"}, per_broker=per_broker)
    validate_dynamic({"listener.name.inside.plain.connections.max.reauth.ms": "5"}, per_broker=True)


def test_a_topics_description_tells_sources() -> None:
    broker = config("log.segment.bytes=1024").with_dynamic(default={"log.retention.ms": "4"}, broker={})
    entries = {each.name: each for each in describe_topic(broker, {"cleanup.policy": "compact"})}
    assert list(entries) == list(TOPIC_SETTINGS)
    policy = entries["cleanup.policy"]
    assert (policy.value, policy.source) == ("compact", ConfigSource.TOPIC_CONFIG)
    assert [(each.name, each.value, each.source) for each in policy.synonyms] == [
        ("cleanup.policy", "compact", ConfigSource.TOPIC_CONFIG),
        ("log.cleanup.policy", "delete", ConfigSource.DEFAULT_CONFIG),
    ]
    assert entries["segment.bytes"].source is ConfigSource.STATIC_BROKER_CONFIG
    assert entries["retention.ms"].source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    assert entries["retention.ms"].value == "4"
    assert (entries["segment.ms"].source, entries["segment.ms"].synonyms) == (ConfigSource.DEFAULT_CONFIG, ())
    assert entries["min.cleanable.dirty.ratio"].value == "0.5"
    assert entries["remote.storage.enable"].value == "false"


def test_a_brokers_description_tells_sources_and_hides_passwords() -> None:
    broker = config("ssl.key.password=secret\nmy.own=x\nlog.retention.hours=2").with_dynamic(
        default={"background.threads": "4"}, broker={"background.threads": "5"}
    )
    entries = {each.name: each for each in describe_broker(broker)}
    assert [each.source for each in entries["background.threads"].synonyms] == [2, 3, 5]
    assert entries["background.threads"].value == "5"
    assert not entries["background.threads"].read_only
    assert entries["num.partitions"].read_only
    password = entries["ssl.key.password"]
    assert (password.value, password.is_sensitive, password.source) == (
        None,
        True,
        ConfigSource.STATIC_BROKER_CONFIG,
    )
    assert entries["my.own"].value is None
    assert entries["log.retention.ms"].synonyms == entries["log.dirs"].synonyms == ()
    assert entries["log.retention.hours"].value == "2"
    assert entries["log.cleaner.io.max.bytes.per.second"].value == "1.7976931348623157E308"
    assert "log.initial.task.delay.ms" not in entries
    numbered = {each.name: each for each in describe_broker(config("broker.id=7"))}
    assert (numbered["node.id"].value, numbered["node.id"].source) == ("7", ConfigSource.STATIC_BROKER_CONFIG)
    (default,) = describe_cluster_default(broker)
    assert (default.name, default.value) == ("background.threads", "4")


@pytest.mark.parametrize(
    ("name", "type_code", "default"),
    [
        ("connections.max.reauth.ms", 5, "0"),
        ("plain.connections.max.reauth.ms", 5, "0"),
        ("sasl.enabled.mechanisms", 7, "GSSAPI"),
        ("ssl.keystore.location", 2, None),
        ("max.connections", 3, "2147483647"),
    ],
)
def test_settings_of_listeners_show_as_what_they_override(
    name: str, type_code: int, default: str | None
) -> None:
    own = f"listener.name.inside.{name}"
    (entry,) = (each for each in describe_broker(config(f"{own}=7")) if each.name == own)
    assert (entry.value, entry.is_sensitive, entry.type_code, entry.read_only) == (
        "7",
        False,
        type_code,
        True,
    )
    assert [each.value for each in entry.synonyms] == ["7"] if default is None else ["7", default]


@pytest.mark.parametrize(
    ("name", "type_code"),
    [("plain.sasl.jaas.config", 9), ("ssl.key.password", 9), ("plain.ssl.key.password", 0), ("my.own", 0)],
)
def test_passwords_of_listeners_and_unknown_settings_are_hidden(name: str, type_code: int) -> None:
    own = f"listener.name.inside.{name}"
    broker = config(f"{own}=secret").with_dynamic(default={own: "secret"}, broker={own: "secret"})
    (entry,) = (each for each in describe_broker(broker) if each.name == own)
    for each in (entry, *describe_cluster_default(broker)):
        assert (each.value, each.is_sensitive, each.type_code) == (None, True, type_code)
        assert {synonym.value for synonym in each.synonyms} == {None}


def test_every_setting_of_the_table_is_sound() -> None:
    table = broker_settings()
    assert len([row for row in table.values() if "3.9" in row.releases]) == 328
    assert len([row for row in table.values() if "4.3" in row.releases]) == 360
    for row in table.values():
        for setting in (row.setting, row.older):
            if setting.default is not None and setting.name not in {"node.id"}:
                text = to_text(setting.default)
                assert text is not None
                assert row.parse(text) == setting.default or row.setting.type is not row.older.type, setting
            assert setting.describe_allowed()
    assert set(OUR_DEFAULTS) <= set(table)


def test_every_honoured_setting_has_its_type() -> None:
    kinds = {
        SettingType.BOOLEAN: "bool",
        SettingType.INT: "int",
        SettingType.LONG: "int",
        SettingType.SHORT: "int",
        SettingType.DOUBLE: "float",
        SettingType.STRING: "str",
        SettingType.LIST: "tuple[str, ...]",
        SettingType.PASSWORD: "str",
    }
    table = broker_settings()
    for attribute in HONOURED_ATTRIBUTES:
        setting = table[attribute.replace("_", ".")].setting
        nullable = setting.default is None and attribute != "log_dirs"
        expected = kinds[setting.type] + (" | None" if nullable else "")
        assert BrokerConfig.__annotations__[attribute] == expected, attribute


def test_every_topic_setting_agrees_with_its_broker_twin() -> None:
    table = broker_settings()
    for name, synonyms in TOPIC_SYNONYMS.items():
        topic = TOPIC_SETTINGS[name]
        for synonym in synonyms:
            assert is_honoured(synonym.name)
        twin = table[synonyms[0].name].setting
        assert topic.type is twin.type
        if synonyms[-1].factor == 1 and len(synonyms) == 1:
            assert topic.default == twin.default, name


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (1, "1"),
        (0.5, "0.5"),
        (1.0, "1.0"),
        (1e-07, "1.0E-7"),
        (1.5e300, "1.5E300"),
        (None, None),
    ],
)
def test_values_are_written_as_java_writes_them(value: Any, text: str | None) -> None:
    assert to_text(value) == text


def test_words_of_any_case() -> None:
    setting = Setting("policy", SettingType.STRING, "disabled", "DISABLED|UPGRADE (any case)")
    assert setting.parse("upgrade") == "upgrade"
    with pytest.raises(
        InvalidSetting, match=r"String must be one of \(case insensitive\): DISABLED, UPGRADE"
    ):
        setting.parse("up")


def test_limits_are_64_bits() -> None:
    assert config(f"log.retention.ms={LONG_MAX}").log_defaults.retention_ms == LONG_MAX
    with pytest.raises(InvalidSetting):
        config(f"log.retention.ms={LONG_MAX + 1}")


def test_annotations_stand_in_order() -> None:
    assert list(HONOURED_ATTRIBUTES) == sorted(HONOURED_ATTRIBUTES)
