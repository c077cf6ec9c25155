"""Kafka's own tools on a cluster of ours: exit codes and output are those of the same calls on Apache Kafka 3.9.1."""

from __future__ import annotations

import re

from tests.interop.kafka_tools import (
    CONFIGS,
    ELECT,
    REASSIGN,
    TOPICS,
    Both,
    create,
    ordered,
    partitions_of,
    produce,
)


def placed(text: str) -> str:
    """Where the replicas of a new topic are is drawn."""
    return re.sub(r"Leader: \d\tReplicas: \d,\d,\d\tIsr: \d,\d,\d", "everywhere", text)


def test_topics_are_created_and_described(both: Both) -> None:
    both.same(TOPICS, "--create", "--topic", "drawn", "--partitions", "2", "--replication-factor", "3")
    both.settled(TOPICS, "--describe", "--topic", "drawn", shows="everywhere", change=placed)
    create(
        both, "placed", "1:2,2:3,3:1", "--config", "retention.ms=900000", "--config", "segment.bytes=2000000"
    )
    both.same(
        TOPICS, "--create", "--topic", "with.dot_and_line", "--partitions", "1", "--replication-factor", "1"
    )
    both.same(TOPICS, "--create", "--topic", "defaults")
    both.settled(TOPICS, "--list", shows="defaults")
    both.settled(TOPICS, "--list", "--exclude-internal", "--topic", "d.*", shows="drawn")
    both.settled(TOPICS, "--describe", "--topics-with-overrides", "--topic", "placed", shows="retention.ms")
    for state in ("under-replicated", "unavailable", "at-min-isr", "under-min-isr"):
        both.settled(TOPICS, "--describe", f"--{state}-partitions", "--topic", "placed", shows="")
    both.same(TOPICS, "--describe", "--topic", "placed", "--exclude-internal")
    both.refused(TOPICS, "--describe", "--topic-id", "AAAAAAAAAAAAAAAAAAAAAg")
    both.same(
        TOPICS,
        "--alter",
        "--topic",
        "placed",
        "--partitions",
        "5",
        "--replica-assignment",
        "1:2,2:3,3:1,1:2,2:1",
    )
    both.settled(TOPICS, "--describe", "--topic", "placed", shows="PartitionCount: 5")
    both.same(TOPICS, "--delete", "--topic", "drawn")
    both.same(TOPICS, "--delete", "--topic", "with.dot_and_line")
    both.same(TOPICS, "--delete", "--topic", "defaults")
    both.settled(TOPICS, "--list", shows="placed")


def test_topics_are_refused(both: Both) -> None:
    create(both, "known", "1:2,2:3")
    new = ("--create", "--topic", "refused")
    both.refused(TOPICS, *new, "--replication-factor", "4", "--partitions", "1")
    both.refused(TOPICS, *new, "--replication-factor", "0", "--partitions", "1")
    both.refused(TOPICS, *new, "--partitions", "0")
    both.refused(TOPICS, *new, "--replica-assignment", "1:1")
    both.refused(TOPICS, *new, "--replica-assignment", "1:2,3")
    both.refused(TOPICS, *new, "--config", "no.such.setting=1")
    both.refused(TOPICS, *new, "--config", "retention.ms=long")
    both.refused(TOPICS, *new, "--config", "min.insync.replicas=0")
    both.refused(TOPICS, *new, "--config", "cleanup.policy=shred")
    both.refused(TOPICS, "--create", "--topic", "known")
    both.same(TOPICS, "--create", "--topic", "known", "--if-not-exists")
    both.refused(TOPICS, "--create", "--topic", "not/a/name")
    both.refused(TOPICS, "--create", "--topic", "..")
    both.refused(TOPICS, "--create", "--topic", "n" * 250)
    both.refused(TOPICS, "--create", "--topic", "__consumer_offsets", "--partitions", "2")
    both.same(TOPICS, "--create", "--topic", "a.b")
    both.refused(TOPICS, "--create", "--topic", "a_b")
    both.refused(TOPICS, "--describe", "--topic", "unknown")
    both.same(TOPICS, "--describe", "--topic", "unknown", "--if-exists")
    both.refused(TOPICS, "--delete", "--topic", "unknown")
    both.same(TOPICS, "--delete", "--topic", "unknown", "--if-exists")
    both.refused(TOPICS, "--alter", "--topic", "unknown", "--partitions", "2")
    both.refused(TOPICS, "--alter", "--topic", "known", "--partitions", "1")
    both.refused(TOPICS, "--alter", "--topic", "known", "--partitions", "2")
    both.refused(
        TOPICS, "--alter", "--topic", "known", "--partitions", "3", "--replica-assignment", "1:2,2:3,3"
    )
    both.refused(
        TOPICS, "--alter", "--topic", "known", "--partitions", "3", "--replica-assignment", "1:2,2:3,3:7"
    )
    both.refused(
        TOPICS, "--alter", "--topic", "known", "--partitions", "3", "--replica-assignment", "1:2,2:3"
    )
    for topic in ("known", "a.b"):
        both.same(TOPICS, "--delete", "--topic", topic)


def test_reassignment(both: Both) -> None:
    create(both, "moved", "1:2,2:3")
    produce(both, "moved", [0, 1])
    topics = both.file({"topics": [{"topic": "moved"}], "version": 1})
    generate = ("--generate", "--topics-to-move-json-file", topics)
    both.same(
        REASSIGN,
        *generate,
        "--broker-list",
        "1,2,3",
        change=lambda text: re.sub(r'replicas":\[[\d,]+', "", text),
    )
    both.refused(REASSIGN, *generate, "--broker-list", "1,9")
    both.same(REASSIGN, "--list", shows="No partition reassignments found")
    plan = both.file(partitions_of("moved", [3, 1, 2], [1, 3]))
    of_plan = ("--reassignment-json-file", plan)
    both.same(REASSIGN, "--verify", *of_plan)
    both.same(
        REASSIGN,
        "--execute",
        *of_plan,
        "--throttle",
        "50000000",
        "--replica-alter-log-dirs-throttle",
        "40000000",
    )
    both.settled(
        CONFIGS, "--describe", "--entity-type", "topics", "--entity-name", "moved", shows="throttled"
    )
    both.settled(CONFIGS, "--describe", "--entity-type", "brokers", shows="")
    both.settled(
        REASSIGN,
        "--verify",
        "--preserve-throttles",
        *of_plan,
        shows="Reassignment of partition moved-1 is completed",
    )
    both.same(REASSIGN, "--verify", *of_plan)
    both.settled(TOPICS, "--describe", "--topic", "moved", shows="Isr")
    both.settled(CONFIGS, "--describe", "--entity-type", "topics", "--entity-name", "moved", shows="")
    both.same(REASSIGN, "--execute", *of_plan)
    both.settled(REASSIGN, "--list", shows="No partition reassignments found")
    both.same(REASSIGN, "--cancel", *of_plan)
    both.same(TOPICS, "--delete", "--topic", "moved")


def test_reassignment_under_way(both: Both) -> None:
    create(both, "slow", "1:2")
    produce(both, "slow", [0], count=300, size_bytes=20_000)
    plan = both.file(partitions_of("slow", [3, 2]))
    of_plan = ("--reassignment-json-file", plan)
    both.same(REASSIGN, "--execute", *of_plan, "--throttle", "1000")
    both.settled(REASSIGN, "--list", shows="slow")
    both.settled(REASSIGN, "--verify", *of_plan, shows="still in progress")
    both.settled(TOPICS, "--describe", "--topic", "slow", shows="Adding Replicas: 3")
    both.same(TOPICS, "--describe", "--under-replicated-partitions", "--topic", "slow")
    both.refused(REASSIGN, "--execute", *of_plan)
    both.same(REASSIGN, "--execute", *of_plan, "--additional", "--throttle", "2000")
    both.refused(TOPICS, "--alter", "--topic", "slow", "--partitions", "2")
    both.same(REASSIGN, "--cancel", *of_plan, "--preserve-throttles")
    both.settled(CONFIGS, "--describe", "--entity-type", "topics", "--entity-name", "slow", shows="throttled")
    both.same(REASSIGN, "--cancel", *of_plan)
    both.settled(REASSIGN, "--list", shows="No partition")
    both.settled(TOPICS, "--describe", "--topic", "slow", shows="Isr: 1,2")
    both.settled(CONFIGS, "--describe", "--entity-type", "brokers", shows="")
    both.same(TOPICS, "--delete", "--topic", "slow")


def test_reassignment_is_refused(both: Both) -> None:
    create(both, "stays", "1:2")
    for plan in (
        partitions_of("stays", [1, 1]),
        partitions_of("stays", [1, 9]),
        partitions_of("stays", []),
        partitions_of("stays", [1], [2]),
        partitions_of("unknown", [1]),
        {"version": 1, "partitions": []},
        {"version": 2},
    ):
        both.refused(REASSIGN, "--execute", "--reassignment-json-file", both.file(plan))
    both.refused(REASSIGN, "--verify", "--reassignment-json-file", both.file(partitions_of("unknown", [1])))
    both.refused(REASSIGN, "--cancel", "--reassignment-json-file", both.file(partitions_of("unknown", [1])))
    directory = partitions_of("stays", [1, 2])
    directory["partitions"][0]["log_dirs"] = ["/no/such/directory", "any"]
    both.refused(REASSIGN, "--execute", "--timeout", "1000", "--reassignment-json-file", both.file(directory))
    both.same(TOPICS, "--delete", "--topic", "stays")


def test_leader_elections(both: Both) -> None:
    create(both, "led", "1:2:3,2:3:1")
    both.same(ELECT, "--election-type", "preferred", "--topic", "led", "--partition", "0")
    both.same(ELECT, "--election-type", "unclean", "--topic", "led", "--partition", "0")
    plan = both.file(partitions_of("led", [2, 1, 3], [3, 2, 1]))
    both.same(REASSIGN, "--execute", "--reassignment-json-file", plan)
    both.settled(REASSIGN, "--verify", "--reassignment-json-file", plan, shows="partition led-1 is completed")
    both.settled(TOPICS, "--describe", "--topic", "led", shows="Leader: 1\tReplicas: 2,1,3")
    both.same(ELECT, "--election-type", "preferred", "--topic", "led", "--partition", "0")
    both.settled(TOPICS, "--describe", "--topic", "led", shows="Leader: 2\tReplicas: 2,1,3")
    partitions = [{"topic": "led", "partition": number} for number in (0, 1)]
    both.same(
        ELECT, "--election-type", "preferred", "--path-to-json-file", both.file({"partitions": partitions})
    )
    both.settled(TOPICS, "--describe", "--topic", "led", shows="Leader: 3\tReplicas: 3,2,1")
    both.same(ELECT, "--election-type", "preferred", "--all-topic-partitions", change=ordered)
    both.same(ELECT, "--election-type", "unclean", "--all-topic-partitions", change=ordered)
    both.refused(ELECT, "--election-type", "preferred", "--topic", "led", "--partition", "7")
    both.refused(ELECT, "--election-type", "preferred", "--topic", "unknown", "--partition", "0")
    unknown = [*partitions, {"topic": "unknown", "partition": 0}]
    both.refused(
        ELECT, "--election-type", "unclean", "--path-to-json-file", both.file({"partitions": unknown})
    )
    both.same(TOPICS, "--delete", "--topic", "led")


def of_kafka(text: str) -> str:
    """Without settings of ours."""
    return "\n".join(line for line in text.splitlines() if not line.startswith("  barnabas."))


def test_settings_of_topics(both: Both) -> None:
    create(both, "set", "1:2:3")
    of_topic = ("--entity-type", "topics", "--entity-name", "set")
    both.same(
        CONFIGS, *of_topic, "--alter", "--add-config", "retention.ms=900000,cleanup.policy=[compact,delete]"
    )
    both.settled(CONFIGS, *of_topic, "--describe", shows="retention.ms=900000")
    both.same(CONFIGS, *of_topic, "--alter", "--delete-config", "retention.ms")
    both.settled(CONFIGS, *of_topic, "--describe", shows="cleanup.policy")
    both.settled(CONFIGS, *of_topic, "--describe", "--all", shows="cleanup.policy", change=of_kafka)
    both.refused(CONFIGS, *of_topic, "--alter", "--delete-config", "retention.ms")
    both.refused(CONFIGS, *of_topic, "--alter", "--add-config", "retention.ms=long")
    both.refused(CONFIGS, *of_topic, "--alter", "--add-config", "no.such.setting=1")
    unknown = ("--entity-type", "topics", "--entity-name", "unknown")
    both.refused(CONFIGS, *unknown, "--alter", "--add-config", "retention.ms=1")
    both.refused(CONFIGS, *unknown, "--describe")
    both.same(CONFIGS, "--entity-type", "topics", "--describe", change=ordered)
    both.same(TOPICS, "--delete", "--topic", "set")


# Settings whose defaults are those of 4.3.1, or that name a cluster.
OTHER_VALUES = {
    "group.consumer.assignors",
    "group.coordinator.append.linger.ms",
    "group.coordinator.rebalance.protocols",
    "group.coordinator.threads",
    "group.share.partition.max.record.locks",
    "log.dir",
    "metric.reporters",
    "num.recovery.threads.per.data.dir",
    "process.roles",
    "queued.max.request.bytes",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.thread.pool.size",
    "sasl.oauthbearer.expected.audience",
    "zookeeper.connect",
}


def described_settings(text: str) -> dict[str, str]:
    return dict(line.strip().split("=", 1) for line in text.splitlines() if " sensitive=" in line)


def test_settings_of_brokers(both: Both) -> None:
    one = ("--entity-type", "brokers", "--entity-name", "1")
    default = ("--entity-type", "brokers", "--entity-default")
    both.same(CONFIGS, *one, "--alter", "--add-config", "log.cleaner.threads=2,log.cleaner.backoff.ms=16000")
    both.same(CONFIGS, *default, "--alter", "--add-config", "num.io.threads=9,log.cleaner.backoff.ms=17000")
    both.settled(CONFIGS, *one, "--describe", shows="DEFAULT_BROKER_CONFIG:log.cleaner.backoff.ms=17000")
    both.settled(CONFIGS, *default, "--describe", shows="num.io.threads=9")
    both.settled(CONFIGS, "--entity-type", "brokers", "--describe", shows="num.io.threads=9")
    ours, kafkas = (
        described_settings(both.run(side, CONFIGS, *one, "--describe", "--all").out) for side in both.sides
    )
    assert len(kafkas) > 250
    assert {name for name, value in kafkas.items() if ours.get(name) != value} == OTHER_VALUES
    both.refused(CONFIGS, *one, "--alter", "--add-config", "broker.id=7")
    both.same(CONFIGS, *one, "--alter", "--add-config", "no.such.setting=7")
    both.refused(CONFIGS, *one, "--alter", "--add-config", "log.cleaner.threads=0")
    both.refused(CONFIGS, *one, "--alter", "--add-config", "num.io.threads=many")
    both.refused(CONFIGS, *default, "--alter", "--add-config", "advertised.listeners=PLAINTEXT://x:1")
    both.same(CONFIGS, *one, "--alter", "--delete-config", "no.such.setting")
    both.same(CONFIGS, *one, "--alter", "--delete-config", "log.cleaner.threads,log.cleaner.backoff.ms")
    both.same(CONFIGS, *default, "--alter", "--delete-config", "num.io.threads,log.cleaner.backoff.ms")
    both.settled(CONFIGS, *default, "--describe", shows="exit code 0", lacks="num.io.threads")
    loggers = ("--entity-type", "broker-loggers", "--entity-name", "1")
    both.same(CONFIGS, *loggers, "--describe", change=lambda text: text.partition("\n")[0])


def test_quotas(both: Both) -> None:
    alter, describe = "--alter", "--describe"
    clients, users = ("--entity-type", "clients"), ("--entity-type", "users")
    app, ann = (*clients, "--entity-name", "app"), (*users, "--entity-name", "ann")
    rates = "producer_byte_rate=1000,consumer_byte_rate=2000,request_percentage=50"
    both.same(CONFIGS, *app, alter, "--add-config", rates)
    both.same(CONFIGS, *clients, "--entity-default", alter, "--add-config", "controller_mutation_rate=1000")
    both.refused(CONFIGS, *ann, alter, "--add-config", "producer_byte_rate=1.5")
    both.same(CONFIGS, *ann, alter, "--add-config", "producer_byte_rate=15")
    both.same(CONFIGS, *ann, *app, alter, "--add-config", "producer_byte_rate=70000000")
    both.same(
        CONFIGS,
        *users,
        "--entity-default",
        *clients,
        "--entity-default",
        alter,
        "--add-config",
        "consumer_byte_rate=80000000",
    )
    ips = ("--entity-type", "ips")
    both.same(CONFIGS, *ips, "--entity-name", "10.1.2.3", alter, "--add-config", "connection_creation_rate=5")
    both.same(CONFIGS, *ips, "--entity-default", alter, "--add-config", "connection_creation_rate=5000")
    for entity in (
        app,
        clients,
        ann,
        users,
        (*ann, *app),
        (*users, *clients),
        ips,
        (*users, "--entity-default", *clients),
    ):
        both.settled(CONFIGS, *entity, describe, shows="", change=ordered)
    both.same(CONFIGS, *app, alter, "--delete-config", "producer_byte_rate,consumer_byte_rate")
    both.settled(CONFIGS, *app, describe, shows="request_percentage")
    both.refused(CONFIGS, *app, alter, "--delete-config", "producer_byte_rate")
    both.refused(CONFIGS, *app, alter, "--add-config", "no_such_quota=1")
    both.refused(CONFIGS, *app, alter, "--add-config", "producer_byte_rate=fast")
    both.refused(
        CONFIGS, *ips, "--entity-name", "no host", alter, "--add-config", "connection_creation_rate=5"
    )
    both.same(CONFIGS, *app, alter, "--delete-config", "request_percentage")
    both.same(CONFIGS, *clients, "--entity-default", alter, "--delete-config", "controller_mutation_rate")
    both.same(
        CONFIGS,
        *users,
        "--entity-default",
        *clients,
        "--entity-default",
        alter,
        "--delete-config",
        "consumer_byte_rate",
    )
    both.same(CONFIGS, *ips, "--entity-default", alter, "--delete-config", "connection_creation_rate")
    both.settled(CONFIGS, *clients, describe, shows="exit code 0", lacks="rate")
