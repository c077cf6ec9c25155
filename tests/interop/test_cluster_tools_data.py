"""Kafka's own tools for records, offsets, groups and transactions on a cluster of ours, beside Apache Kafka 3.9.1."""

from __future__ import annotations

import re
from pathlib import Path

from barnabas.client.consumer.consumer import Consumer
from barnabas.client.producer.producer import Producer
from tests.interop.kafka_tools import (
    ACLS,
    API_VERSIONS,
    CLUSTER,
    DELETE_RECORDS,
    GROUPS,
    LOG_DIRS,
    OFFSETS,
    QUORUM,
    TOPICS,
    TRANSACTIONS,
    VERIFY,
    Both,
    create,
    described_directories,
    produce,
)
from tests.interop.programs import patient
from tests.waiting import wait_until


def test_replicas_are_verified(both: Both) -> None:
    create(both, "verified", "1:2:3,2:3:1")
    produce(both, "verified", [0, 1], count=500)
    for side in both.sides:
        ran = both.run(
            side,
            VERIFY,
            *(
                "--topics-include",
                "verified",
                "--time",
                "-2",
                "--report-interval-ms",
                "200",
                "--max-wait-ms",
                "100",
            ),
            until=("max lag is", 8),
        )
        assert ran.code == 0, ran
        reports = [line for line in ran.out.splitlines() if "max lag is" in line]
        assert len(reports) >= 8, ran
        assert all("max lag is 0 for partition verified-" in line for line in reports[2:]), ran
    both.same(TOPICS, "--delete", "--topic", "verified")


def test_log_directories(both: Both) -> None:
    create(both, "stored", "1:2,2:3")
    produce(both, "stored", [0])
    both.settled(
        LOG_DIRS, "--describe", "--topic-list", "stored", shows="stored-1", change=described_directories
    )
    both.settled(
        LOG_DIRS,
        "--describe",
        "--broker-list",
        "1,2",
        "--topic-list",
        "stored",
        shows="stored-1",
        change=described_directories,
    )
    both.settled(
        LOG_DIRS, "--describe", "--topic-list", "unknown", shows="brokers", change=described_directories
    )
    both.refused(LOG_DIRS, "--describe", "--broker-list", "1,9")
    both.same(TOPICS, "--delete", "--topic", "stored")


def test_offsets_and_deleted_records(both: Both) -> None:
    create(both, "kept", "1:2:3,2:3:1")
    produce(both, "kept", [0, 1], count=20)
    both.settled(OFFSETS, "--topic", "kept", shows="kept:1:20")
    for when in ("earliest", "latest", "-1", "-2", "-3"):
        both.same(OFFSETS, "--topic", "kept", "--time", when)
    both.same(OFFSETS, "--topic-partitions", "kept:0-1", "--time", "earliest-local")
    both.same(OFFSETS, "--topic-partitions", "kept:0", "--time", "latest-tiered")
    both.refused(OFFSETS, "--topic", "unknown")
    both.refused(OFFSETS, "--topic-partitions", "kept:7")
    deleted = [
        {"topic": "kept", "partition": 0, "offset": 5},
        {"topic": "kept", "partition": 1, "offset": -1},
    ]
    both.same(DELETE_RECORDS, "--offset-json-file", both.file({"partitions": deleted, "version": 1}))
    both.settled(OFFSETS, "--topic", "kept", "--time", "earliest", shows="kept:0:5")
    refused = [{"topic": "kept", "partition": 0, "offset": 50}]
    both.same(DELETE_RECORDS, "--offset-json-file", both.file({"partitions": refused, "version": 1}))
    both.same(TOPICS, "--delete", "--topic", "kept")


def test_groups(both: Both) -> None:
    create(both, "read", "1:2:3,2:3:1")
    produce(both, "read", [0, 1], count=20)
    reset = ("--reset-offsets", "--group", "readers", "--topic", "read")
    both.same(GROUPS, "--list")
    both.same(GROUPS, *reset, "--to-earliest", "--dry-run")
    both.same(GROUPS, *reset, "--to-earliest", "--execute")
    both.settled(GROUPS, "--describe", "--group", "readers", shows="read")
    both.same(GROUPS, *reset, "--shift-by", "7", "--execute")
    both.same(GROUPS, *reset, "--to-offset", "90", "--execute")
    both.same(GROUPS, "--reset-offsets", "--group", "readers", "--topic", "read:1", "--to-latest", "--export")
    both.same(GROUPS, "--describe", "--group", "readers", "--offsets")
    both.same(GROUPS, "--describe", "--group", "readers", "--members")
    both.same(GROUPS, "--describe", "--group", "readers", "--members", "--verbose")
    both.same(GROUPS, "--describe", "--group", "readers", "--state")
    both.same(GROUPS, "--describe", "--all-groups")
    both.same(GROUPS, "--list", "--state")
    both.same(GROUPS, "--list", "--type")
    both.same(GROUPS, "--list", "--state", "Stable,Dead")
    both.same(GROUPS, "--delete-offsets", "--group", "readers", "--topic", "read:0")
    both.same(GROUPS, "--describe", "--group", "readers")
    both.same(GROUPS, "--delete", "--group", "readers")
    both.same(GROUPS, "--delete", "--group", "unknown")
    both.same(GROUPS, "--describe", "--group", "unknown")
    both.same(GROUPS, "--delete-offsets", "--group", "unknown", "--topic", "read:0")
    both.same(TOPICS, "--delete", "--topic", "read")


def unnamed(text: str) -> str:
    """Members have drawn ids."""
    return re.sub(r"reader-[0-9a-f-]{36}", "reader-<id>", text)


def test_members_of_a_group(both: Both) -> None:
    create(both, "shared", "1:2:3,2:3:1")
    consumers = []
    for side in both.sides:
        consumer = Consumer(bootstrap_servers=side.bootstrap, group_id="active", client_id="reader")
        consumers.append(consumer)
        consumer.subscribe(["shared"])
        wait_until(lambda member=consumer: len(member.assignment()) == 2, meanwhile=consumer.poll)  # type: ignore[misc]
    of_group = ("--describe", "--group", "active")
    for what in (("--members",), ("--members", "--verbose"), ("--state",), ()):
        both.settled(GROUPS, *of_group, *what, shows="active", change=unnamed)
    both.settled(GROUPS, "--list", "--state", shows="Stable")
    both.same(GROUPS, "--delete", "--group", "active")
    both.same(GROUPS, "--reset-offsets", "--group", "active", "--topic", "shared", "--to-latest", "--execute")
    for consumer in consumers:
        consumer.close()
    both.settled(GROUPS, *of_group, "--state", shows="Empty")
    both.same(GROUPS, "--delete", "--group", "active")
    both.same(TOPICS, "--delete", "--topic", "shared")


def undrawn(text: str) -> str:
    """Without times and producer ids."""
    text = re.sub(r"\b\d{10,}\b", "<time>", text)
    text = re.sub(r"(?<=\t60000               \t<time>                \t)\d+ *", "<duration>", text)
    # The lists of transactions, a transaction, and the producers of a partition.
    text = re.sub(r"(?m)^(pays *\t\d+ *\t|\d+ *\tpays *\t)\d+ *", r"\1<id>", text)
    return re.sub(r"(?m)^\d+ *(\t\d+ *\t-1 *\t\d+ *\t<time>)", r"<id>\1", text)


def test_transactions(both: Both) -> None:
    create(both, "paid", "1:2:3")
    both.same(TRANSACTIONS, "list")
    both.refused(TRANSACTIONS, "describe", "--transactional-id", "unknown")
    open_ones = []
    for side in both.sides:
        producer = Producer(bootstrap_servers=side.bootstrap, transactional_id="pays")
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("paid", b"1", partition=0)
        producer.flush()
        open_ones.append(producer)
    both.settled(TRANSACTIONS, "list", shows="Ongoing", change=undrawn)
    both.settled(TRANSACTIONS, "list", "--duration-filter", "3600000", shows="")
    both.settled(
        TRANSACTIONS,
        "describe",
        "--transactional-id",
        "pays",
        shows="paid-0",
        change=undrawn,
    )
    both.settled(
        TRANSACTIONS,
        "describe-producers",
        "--topic",
        "paid",
        "--partition",
        "0",
        shows="",
        change=undrawn,
    )
    both.same(TRANSACTIONS, "find-hanging", "--broker-id", "1", "--max-transaction-timeout", "1")
    both.same(TRANSACTIONS, "abort", "--topic", "paid", "--partition", "0", "--start-offset", "0")
    for producer in open_ones:
        producer.close()
    both.same(TOPICS, "--delete", "--topic", "paid")


def versions(text: str) -> dict[str, tuple[int, int]]:
    """The versions of APIs that broker 1 answers."""
    of_one = text.partition("<address of 1> (id: 1 rack: null) -> (\n")[2].partition("\n)")[0]
    found = {}
    for line in of_one.splitlines():
        if matched := re.match(r"\t(\w+)\(\d+\): (\d+)(?: to (\d+))? \[usable", line):
            found[matched[1]] = int(matched[2]), int(matched[3] or matched[2])
    return found


def test_the_cluster(both: Both, tmp_path: Path) -> None:
    both.same(CLUSTER, "cluster-id")
    both.same(CLUSTER, "unregister", "--id", "3", shows="does not support")
    both.refused(ACLS, "--list")
    # Ours answer DescribeQuorum: the controller is the leader, the other brokers are observers.
    for what in ("--status", "--replication"):
        assert both.run(both.kafka, QUORUM, "describe", what).code == 1
        assert both.run(both.ours, QUORUM, "describe", what).code == 0
    ours, kafkas = (versions(both.run(side, API_VERSIONS, *patient(tmp_path)).out) for side in both.sides)
    assert len(kafkas) > 50
    # Envelope is for KRaft and for migrations to it.
    assert kafkas.keys() - ours.keys() == {"Envelope"}
    for name in kafkas.keys() & ours.keys():
        assert ours[name][0] <= kafkas[name][0] <= kafkas[name][1] <= ours[name][1], name
