"""Kafka's own tools on a cluster with brokers that are down, beside Apache Kafka 3.9.1."""

from __future__ import annotations

from tests.interop.kafka_tools import (
    ELECT,
    LOG_DIRS,
    REASSIGN,
    TOPICS,
    Both,
    create,
    described_directories,
    ordered,
    partitions_of,
    produce,
)
from tests.waiting import wait_until


def elect(both: Both, kind: str, topic: str) -> None:
    both.refused(ELECT, "--election-type", kind, "--topic", topic, "--partition", "0")


def test_brokers_are_down(both: Both) -> None:
    create(both, "moves", "3:1:2,1:2:3")
    create(both, "alone", "3")
    create(both, "pair", "3:2")
    create(both, "lost", "2:3")
    for topic in ("moves", "alone", "pair", "lost"):
        produce(both, topic, [0])
    for side in both.sides:
        side.kill(3)
    both.settled(TOPICS, "--describe", "--topic", "moves", shows="Leader: 1\tReplicas: 3,1,2\tIsr: 1,2")
    both.settled(TOPICS, "--describe", "--topic", "alone", shows="Leader: none")
    shown = {
        "under-replicated": "lost",
        "unavailable": "alone",
        "at-min-isr": "pair",
        "under-min-isr": "alone",
    }
    for state, topic in shown.items():
        both.settled(TOPICS, "--describe", f"--{state}-partitions", shows=f"Topic: {topic}", change=ordered)
    elect(both, "preferred", "moves")
    both.same(ELECT, "--election-type", "unclean", "--topic", "moves", "--partition", "0", shows="already")
    elect(both, "unclean", "alone")
    both.refused(ELECT, "--election-type", "preferred", "--all-topic-partitions")
    plan = both.file(partitions_of("moves", [3, 2], [1, 2, 3]))
    both.refused(REASSIGN, "--execute", "--reassignment-json-file", plan)
    both.refused(TOPICS, "--create", "--topic", "wide", "--replication-factor", "3", "--partitions", "1")
    both.settled(
        LOG_DIRS, "--describe", "--topic-list", "moves", shows="moves-1", change=described_directories
    )
    # A topic is gone for clients, and its name is free when all replicas are deleted.
    both.same(TOPICS, "--delete", "--topic", "pair")
    both.settled(TOPICS, "--list", shows="lost", lacks="pair")
    both.refused(TOPICS, "--create", "--topic", "pair", "--replica-assignment", "1:2")
    for side in both.sides:
        side.kill(2)
    both.settled(TOPICS, "--describe", "--topic", "lost", shows="Leader: none\tReplicas: 2,3\tIsr: 2")
    for side in both.sides:
        side.start(3)
    both.settled(TOPICS, "--describe", "--topic", "alone", shows="Leader: 3")
    both.settled(TOPICS, "--describe", "--topic", "lost", shows="Leader: none\tReplicas: 2,3\tIsr: 2")
    elect(both, "preferred", "lost")
    both.same(ELECT, "--election-type", "unclean", "--topic", "lost", "--partition", "0", shows="Success")
    both.settled(TOPICS, "--describe", "--topic", "lost", shows="Leader: 3\tReplicas: 2,3\tIsr: 3")
    for side in both.sides:
        side.start(2)
    both.settled(TOPICS, "--describe", "--under-replicated-partitions", shows="exit code 0", lacks="Topic:")
    for side in both.sides:
        wait_until(lambda tree=side.tree: tree.exists("/admin/delete_topics/pair") is None)  # type: ignore[misc]
    both.settled(TOPICS, "--list", shows="lost", lacks="pair")
    both.same(
        ELECT, "--election-type", "preferred", "--all-topic-partitions", shows="Success", change=ordered
    )
    both.settled(TOPICS, "--describe", "--topic", "lost", shows="Leader: 2\tReplicas: 2,3")
    both.settled(TOPICS, "--describe", "--topic", "moves", shows="Leader: 3\tReplicas: 3,1,2")
    for topic in ("moves", "alone", "lost"):
        both.same(TOPICS, "--delete", "--topic", topic)
    both.settled(TOPICS, "--list", shows="exit code 0", lacks="lost")
