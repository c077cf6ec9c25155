"""Requests about records, topics, groups and transactions, with the ACLs that they need; and all cases."""

from __future__ import annotations

from typing import Any, Final

from barnabas.security.acls import (
    ALTER,
    CLUSTER_ACTION,
    CREATE,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    IDEMPOTENT_WRITE,
    READ,
    WRITE,
)
from tests.broker.record_requests import batch
from tests.peers.authorization_admin_cases import CLUSTER_CASES, SETTINGS_CASES, TOKEN_CASES
from tests.peers.authorization_case import (
    BILLING,
    CLUSTER_DENIED,
    GROUP_DENIED,
    HIDDEN,
    NEW,
    ORDERS,
    PAYMENTS,
    REPORTS,
    TOPIC_DENIED,
    TRANSACTION_DENIED,
    Case,
    Needed,
    cluster,
    group,
    one,
    topic,
    transaction,
)

RECORDS: Final = batch(b"value")
IN_TRANSACTION: Final = batch(
    b"value", producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True
)


def produced(records: bytes, **fields: Any) -> dict[str, Any]:
    topics = [{"name": ORDERS, "partition_data": [{"index": 0, "records": records}]}]
    return {"acks": 1, "timeout_ms": 10_000, "topic_data": topics, **fields}


def fetched(**fields: Any) -> dict[str, Any]:
    partitions = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]
    return {
        "max_bytes": 1 << 20,
        "session_epoch": -1,
        "topics": [{"topic": ORDERS, "partitions": partitions}],
        **fields,
    }


OFFSET: Final = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
COMMITTED: Final = {"name": ORDERS, "partitions": [OFFSET]}
IN_GROUP: Final = {"group_id": BILLING, "generation_id": 1, "member_id": "member"}
PRODUCER: Final = {"producer_id": 1, "producer_epoch": 0}

RECORD_CASES: Final = [
    Case("Produce", 9, produced(RECORDS), one(topic(WRITE)), TOPIC_DENIED),
    Case(
        "Produce",
        11,
        produced(IN_TRANSACTION, transactional_id=PAYMENTS),
        one(transaction(WRITE)),
        TRANSACTION_DENIED,
        note="transaction",
    ),
    # Without records of a transaction its id means nothing.
    Case(
        "Produce",
        11,
        produced(RECORDS, transactional_id=PAYMENTS),
        one(topic(WRITE)),
        TOPIC_DENIED,
        note="id alone",
    ),
    Case("Fetch", 12, fetched(), one(topic(READ)), TOPIC_DENIED),
    Case("Fetch", 12, fetched(replica_id=7), one(cluster(CLUSTER_ACTION)), TOPIC_DENIED, note="follower"),
    Case(
        "ListOffsets",
        10,
        {
            "replica_id": -1,
            "topics": [{"name": ORDERS, "partitions": [{"partition_index": 0, "timestamp": -1}]}],
        },
        one(topic(DESCRIBE)),
        TOPIC_DENIED,
    ),
    Case(
        "OffsetForLeaderEpoch",
        4,
        {
            "replica_id": -2,
            "topics": [{"topic": ORDERS, "partitions": [{"partition": 0, "leader_epoch": 0}]}],
        },
        one(topic(DESCRIBE), cluster(CLUSTER_ACTION)),
        TOPIC_DENIED,
        alternatives=True,
    ),
    Case(
        "DeleteRecords",
        2,
        {
            "topics": [{"name": ORDERS, "partitions": [{"partition_index": 0, "offset": 0}]}],
            "timeout_ms": 9_000,
        },
        one(topic(DELETE)),
        TOPIC_DENIED,
    ),
]

TOPIC_CASES: Final = [
    Case(
        "Metadata",
        12,
        {
            "topics": [{"name": ORDERS}],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": True,
        },
        one(topic(DESCRIBE)),
        TOPIC_DENIED,
    ),
    Case(
        "Metadata",
        10,
        {"topics": None, "include_cluster_authorized_operations": True, "allow_auto_topic_creation": False},
        one(cluster(DESCRIBE)),
        HIDDEN,
        note="all",
    ),
    Case("Metadata", 12, {"topics": None}, one(topic(DESCRIBE)), HIDDEN, note="all"),
    Case(
        "Metadata",
        12,
        {"topics": [{"name": NEW}], "allow_auto_topic_creation": True},
        one(topic(DESCRIBE, NEW), topic(CREATE, NEW)),
        TOPIC_DENIED,
        note="creation",
    ),
    Case(
        "Metadata",
        12,
        {"topics": [{"name": "new-2"}], "allow_auto_topic_creation": True},
        one(topic(DESCRIBE, "new-2"), cluster(CREATE)),
        TOPIC_DENIED,
        note="creation",
    ),
    Case(
        "DescribeTopicPartitions",
        0,
        {"topics": [{"name": ORDERS}, {"name": "missing"}], "response_partition_limit": 100},
        one(topic(DESCRIBE)),
        HIDDEN,
    ),
    Case(
        "CreateTopics",
        7,
        {
            "topics": [{"name": "made", "num_partitions": 1, "replication_factor": 1}],
            "timeout_ms": 9_000,
            "validate_only": True,
        },
        one(topic(CREATE, "made"), cluster(CREATE)),
        TOPIC_DENIED,
        alternatives=True,
    ),
    Case(
        "CreateTopics",
        7,
        {
            "topics": [{"name": "made", "num_partitions": 1, "replication_factor": 1}],
            "timeout_ms": 9_000,
            "validate_only": True,
        },
        one(cluster(CREATE), topic(DESCRIBE_CONFIGS, "made")),
        TOPIC_DENIED,
        note="configs",
    ),
    Case(
        "DeleteTopics",
        6,
        {"topics": [{"name": "missing"}], "timeout_ms": 9_000},
        one(topic(DELETE, "missing"), cluster(DELETE)),
        TOPIC_DENIED,
        alternatives=True,
    ),
    Case(
        "DeleteTopics",
        6,
        {"topics": [{"name": "missing"}], "timeout_ms": 9_000},
        one(topic(DESCRIBE, "missing")),
        TOPIC_DENIED,
        note="missing",
    ),
    Case(
        "CreatePartitions",
        3,
        {
            "topics": [{"name": ORDERS, "count": 2, "assignments": None}],
            "timeout_ms": 9_000,
            "validate_only": True,
        },
        one(topic(ALTER)),
        TOPIC_DENIED,
    ),
    Case(
        "ElectLeaders",
        2,
        {"topic_partitions": [{"topic": ORDERS, "partitions": [0]}], "timeout_ms": 9_000},
        one(cluster(ALTER)),
        CLUSTER_DENIED,
    ),
    Case(
        "AlterPartitionReassignments",
        1,
        {
            "topics": [{"name": ORDERS, "partitions": [{"partition_index": 0, "replicas": None}]}],
            "timeout_ms": 9_000,
        },
        one(cluster(ALTER)),
        CLUSTER_DENIED,
    ),
    Case("ListPartitionReassignments", 0, {"timeout_ms": 9_000}, one(cluster(DESCRIBE)), CLUSTER_DENIED),
]

GROUP_CASES: Final = [
    Case(
        "OffsetCommit",
        9,
        {"group_id": BILLING, "topics": [COMMITTED]},
        one(group(READ), topic(READ)),
        GROUP_DENIED,
    ),
    Case(
        "OffsetFetch",
        9,
        {"groups": [{"group_id": BILLING, "topics": [{"name": ORDERS, "partition_indexes": [0]}]}]},
        one(group(DESCRIBE), topic(DESCRIBE)),
        GROUP_DENIED,
    ),
    Case(
        "OffsetFetch",
        9,
        {"groups": [{"group_id": BILLING, "topics": None}]},
        one(group(DESCRIBE), topic(DESCRIBE)),
        GROUP_DENIED,
        note="all",
    ),
    Case(
        "OffsetFetch",
        1,
        {"group_id": BILLING, "topics": [{"name": ORDERS, "partition_indexes": [0]}]},
        one(group(DESCRIBE), topic(DESCRIBE)),
        GROUP_DENIED,
    ),
    Case("FindCoordinator", 6, {"coordinator_keys": [BILLING]}, one(group(DESCRIBE)), GROUP_DENIED),
    Case("FindCoordinator", 3, {"key": BILLING}, one(group(DESCRIBE)), GROUP_DENIED),
    Case(
        "FindCoordinator",
        6,
        {"coordinator_keys": [PAYMENTS], "key_type": 1},
        one(transaction(DESCRIBE)),
        TRANSACTION_DENIED,
    ),
    Case(
        "JoinGroup",
        9,
        {
            "group_id": BILLING,
            "session_timeout_ms": 1,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        },
        one(group(READ)),
        GROUP_DENIED,
    ),
    Case("Heartbeat", 4, IN_GROUP, one(group(READ)), GROUP_DENIED),
    Case(
        "LeaveGroup",
        5,
        {"group_id": BILLING, "members": [{"member_id": "member"}]},
        one(group(READ)),
        GROUP_DENIED,
    ),
    Case(
        "SyncGroup",
        5,
        {**IN_GROUP, "protocol_type": "consumer", "protocol_name": "range"},
        one(group(READ)),
        GROUP_DENIED,
    ),
    Case(
        "DescribeGroups",
        5,
        {"groups": [BILLING], "include_authorized_operations": True},
        one(group(DESCRIBE)),
        GROUP_DENIED,
    ),
    Case("ListGroups", 5, {}, one(group(DESCRIBE), cluster(DESCRIBE)), HIDDEN, alternatives=True),
    Case("DeleteGroups", 2, {"groups_names": ["unused"]}, one(Needed(DELETE, GROUP, "unused")), GROUP_DENIED),
    Case(
        "OffsetDelete",
        0,
        {"group_id": BILLING, "topics": [{"name": ORDERS, "partitions": [{"partition_index": 5}]}]},
        one(group(DELETE), topic(READ)),
        GROUP_DENIED,
    ),
    Case(
        "ConsumerGroupHeartbeat",
        1,
        {
            "group_id": BILLING,
            "member_id": "member",
            "member_epoch": 5,
            "rebalance_timeout_ms": 9_000,
            "subscribed_topic_names": [ORDERS],
            "topic_partitions": [],
        },
        one(group(READ), topic(DESCRIBE)),
        GROUP_DENIED,
    ),
    Case(
        "ConsumerGroupDescribe",
        1,
        {"group_ids": [BILLING], "include_authorized_operations": True},
        one(group(DESCRIBE)),
        GROUP_DENIED,
    ),
    Case(
        "ConsumerGroupDescribe",
        1,
        {"group_ids": [REPORTS], "include_authorized_operations": True},
        one(Needed(DESCRIBE, GROUP, REPORTS), topic(DESCRIBE)),
        GROUP_DENIED,
        note="members",
    ),
]

TRANSACTION_CASES: Final = [
    Case(
        "InitProducerId",
        5,
        {"transactional_id": PAYMENTS, "transaction_timeout_ms": -1, "producer_id": -1, "producer_epoch": -1},
        one(transaction(WRITE)),
        TRANSACTION_DENIED,
    ),
    Case(
        "InitProducerId",
        5,
        {"transactional_id": None, "producer_id": -1, "producer_epoch": -1},
        one(cluster(IDEMPOTENT_WRITE), topic(WRITE, "other")),
        CLUSTER_DENIED,
        alternatives=True,
        note="idempotent",
    ),
    Case(
        "AddPartitionsToTxn",
        3,
        {
            "v3_and_below_transactional_id": PAYMENTS,
            "v3_and_below_producer_id": 1,
            "v3_and_below_topics": [{"name": ORDERS, "partitions": [0]}],
        },
        one(transaction(WRITE), topic(WRITE)),
        TRANSACTION_DENIED,
    ),
    Case(
        "AddPartitionsToTxn",
        5,
        {
            "transactions": [
                {
                    "transactional_id": PAYMENTS,
                    **PRODUCER,
                    "topics": [{"name": ORDERS, "partitions": [0]}],
                    "verify_only": True,
                }
            ]
        },
        one(cluster(CLUSTER_ACTION)),
        CLUSTER_DENIED,
        note="broker",
    ),
    Case(
        "AddOffsetsToTxn",
        4,
        {"transactional_id": PAYMENTS, **PRODUCER, "group_id": BILLING},
        one(transaction(WRITE), group(READ)),
        TRANSACTION_DENIED,
    ),
    Case(
        "EndTxn", 4, {"transactional_id": PAYMENTS, **PRODUCER}, one(transaction(WRITE)), TRANSACTION_DENIED
    ),
    Case(
        "WriteTxnMarkers",
        1,
        {
            "markers": [
                {
                    **PRODUCER,
                    "topics": [{"name": "missing", "partition_indexes": [0]}],
                    "coordinator_epoch": 0,
                }
            ]
        },
        one(cluster(ALTER), cluster(CLUSTER_ACTION)),
        CLUSTER_DENIED,
        alternatives=True,
    ),
    Case(
        "TxnOffsetCommit",
        4,
        {"transactional_id": PAYMENTS, "group_id": BILLING, **PRODUCER, "topics": [COMMITTED]},
        one(transaction(WRITE), group(READ), topic(READ)),
        TRANSACTION_DENIED,
    ),
    Case(
        "DescribeProducers",
        0,
        {"topics": [{"name": ORDERS, "partition_indexes": [0]}]},
        one(topic(READ)),
        TOPIC_DENIED,
    ),
    Case(
        "DescribeTransactions",
        0,
        {"transactional_ids": [PAYMENTS]},
        one(transaction(DESCRIBE), topic(DESCRIBE)),
        TRANSACTION_DENIED,
    ),
    Case("ListTransactions", 1, {}, one(transaction(DESCRIBE)), HIDDEN),
]

CASES: Final = [
    *RECORD_CASES,
    *TOPIC_CASES,
    *GROUP_CASES,
    *TRANSACTION_CASES,
    *SETTINGS_CASES,
    *CLUSTER_CASES,
    *TOKEN_CASES,
]
