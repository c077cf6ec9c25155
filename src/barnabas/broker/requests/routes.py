"""The APIs that this broker serves, with their versions and the modules of their handlers: one row per API.

Other versions are not advertised, and a client that uses one nevertheless is disconnected. The rows are read at start;
the module of a handler is loaded with the first request of its API. Requests that only brokers send are served in a
cluster, and not advertised elsewhere.

Each row also says what the authorizer is asked before a request has an effect (`Access`): an operation on the cluster,
which dispatch checks; operations on resources, which the handler checks for each resource; or nothing, and why.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from barnabas.protocol.apis import Api, api_for_name
from barnabas.security.acls import (
    ALTER,
    ALTER_CONFIGS,
    CLUSTER,
    CLUSTER_ACTION,
    CREATE,
    CREATE_TOKENS,
    DELEGATION_TOKEN,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    DESCRIBE_TOKENS,
    GROUP,
    IDEMPOTENT_WRITE,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    USER,
    WRITE,
)

OWN_TOKENS: Final = "the owner of a token, and its renewers, may do this"


class Access(NamedTuple):
    """What a client needs for the requests of an API."""

    # An operation on the cluster that every request needs. Dispatch checks it.
    cluster_operation: int | None = None
    # Operations on resources that a request may need: type of resource and operation. The handler checks them.
    resources: tuple[tuple[int, int], ...] = ()
    # Why every client may send the requests.
    open_because: str = ""


def cluster(operation: int) -> Access:
    return Access(cluster_operation=operation)


def resources(*needed: tuple[int, int]) -> Access:
    return Access(resources=needed)


def open_to_all(reason: str) -> Access:
    return Access(open_because=reason)


class Route(NamedTuple):
    name: str
    first_version: int
    last_version: int
    # Below `barnabas.broker.handlers`.
    module: str
    access: Access

    @property
    def api(self) -> Api:
        return api_for_name(self.name)


ROUTES: Final = (
    Route("Produce", 0, 13, "records.produce", resources((TOPIC, WRITE), (TRANSACTIONAL_ID, WRITE))),
    Route("Fetch", 0, 18, "records.fetch", resources((TOPIC, READ), (CLUSTER, CLUSTER_ACTION))),
    Route("ListOffsets", 0, 11, "records.list_offsets", resources((TOPIC, DESCRIBE))),
    Route(
        "Metadata",
        0,
        13,
        "topics.metadata",
        resources((TOPIC, DESCRIBE), (TOPIC, CREATE), (CLUSTER, CREATE), (CLUSTER, DESCRIBE)),
    ),
    Route("OffsetCommit", 0, 10, "groups.offset_commit", resources((GROUP, READ), (TOPIC, READ))),
    Route("OffsetFetch", 0, 10, "groups.offset_fetch", resources((GROUP, DESCRIBE), (TOPIC, DESCRIBE))),
    Route(
        "FindCoordinator",
        0,
        6,
        "groups.find_coordinator",
        resources((GROUP, DESCRIBE), (TRANSACTIONAL_ID, DESCRIBE)),
    ),
    Route("JoinGroup", 0, 9, "groups.join_group", resources((GROUP, READ))),
    Route("Heartbeat", 0, 4, "groups.heartbeat", resources((GROUP, READ))),
    Route("LeaveGroup", 0, 5, "groups.leave_group", resources((GROUP, READ))),
    Route("SyncGroup", 0, 5, "groups.sync_group", resources((GROUP, READ))),
    Route("DescribeGroups", 0, 6, "groups.describe_groups", resources((GROUP, DESCRIBE))),
    Route("ListGroups", 0, 5, "groups.list_groups", resources((CLUSTER, DESCRIBE), (GROUP, DESCRIBE))),
    Route("SaslHandshake", 0, 1, "security.sasl_handshake", open_to_all("clients log in with it")),
    Route("ApiVersions", 0, 4, "cluster.api_versions", open_to_all("clients ask before they know anything")),
    Route(
        "CreateTopics",
        0,
        7,
        "topics.create_topics",
        resources((CLUSTER, CREATE), (TOPIC, CREATE), (TOPIC, DESCRIBE_CONFIGS)),
    ),
    Route(
        "DeleteTopics",
        0,
        6,
        "topics.delete_topics",
        resources((CLUSTER, DELETE), (TOPIC, DELETE), (TOPIC, DESCRIBE)),
    ),
    Route("DeleteRecords", 0, 2, "records.delete_records", resources((TOPIC, DELETE))),
    # Version 6 asks for two-phase commit, which needs a transaction coordinator that keeps prepared transactions.
    Route(
        "InitProducerId",
        0,
        5,
        "transactions.init_producer_id",
        resources((TRANSACTIONAL_ID, WRITE), (CLUSTER, IDEMPOTENT_WRITE), (TOPIC, WRITE)),
    ),
    Route(
        "OffsetForLeaderEpoch",
        0,
        4,
        "records.offset_for_leader_epoch",
        resources((CLUSTER, CLUSTER_ACTION), (TOPIC, DESCRIBE)),
    ),
    Route(
        "AddPartitionsToTxn",
        0,
        5,
        "transactions.add_partitions_to_txn",
        resources((TRANSACTIONAL_ID, WRITE), (TOPIC, WRITE), (CLUSTER, CLUSTER_ACTION)),
    ),
    Route(
        "AddOffsetsToTxn",
        0,
        4,
        "transactions.add_offsets_to_txn",
        resources((TRANSACTIONAL_ID, WRITE), (GROUP, READ)),
    ),
    Route("EndTxn", 0, 5, "transactions.end_txn", resources((TRANSACTIONAL_ID, WRITE))),
    Route(
        "WriteTxnMarkers",
        0,
        2,
        "transactions.write_txn_markers",
        resources((CLUSTER, ALTER), (CLUSTER, CLUSTER_ACTION)),
    ),
    Route(
        "TxnOffsetCommit",
        0,
        5,
        "groups.txn_offset_commit",
        resources((TRANSACTIONAL_ID, WRITE), (GROUP, READ), (TOPIC, READ)),
    ),
    Route("DescribeAcls", 0, 3, "security.describe_acls", cluster(DESCRIBE)),
    Route("CreateAcls", 0, 3, "security.create_acls", cluster(ALTER)),
    Route("DeleteAcls", 0, 3, "security.delete_acls", cluster(ALTER)),
    Route(
        "DescribeConfigs",
        0,
        4,
        "settings.describe_configs",
        resources((CLUSTER, DESCRIBE_CONFIGS), (TOPIC, DESCRIBE_CONFIGS), (GROUP, DESCRIBE_CONFIGS)),
    ),
    Route(
        "AlterConfigs",
        0,
        2,
        "settings.alter_configs",
        resources((CLUSTER, ALTER_CONFIGS), (TOPIC, ALTER_CONFIGS), (GROUP, ALTER_CONFIGS)),
    ),
    Route("AlterReplicaLogDirs", 0, 2, "cluster.alter_replica_log_dirs", cluster(ALTER)),
    Route("DescribeLogDirs", 0, 5, "cluster.describe_log_dirs", cluster(DESCRIBE)),
    Route("SaslAuthenticate", 0, 2, "security.sasl_authenticate", open_to_all("clients log in with it")),
    Route(
        "CreateDelegationToken", 0, 3, "security.create_delegation_token", resources((USER, CREATE_TOKENS))
    ),
    Route("RenewDelegationToken", 0, 2, "security.renew_delegation_token", open_to_all(OWN_TOKENS)),
    Route("ExpireDelegationToken", 0, 2, "security.expire_delegation_token", open_to_all(OWN_TOKENS)),
    Route(
        "DescribeDelegationToken",
        0,
        3,
        "security.describe_delegation_token",
        resources((DELEGATION_TOKEN, DESCRIBE), (USER, DESCRIBE_TOKENS)),
    ),
    Route("CreatePartitions", 0, 3, "topics.create_partitions", resources((TOPIC, ALTER))),
    Route("DeleteGroups", 0, 2, "groups.delete_groups", resources((GROUP, DELETE))),
    Route("ElectLeaders", 0, 2, "topics.elect_leaders", cluster(ALTER)),
    Route(
        "IncrementalAlterConfigs",
        0,
        1,
        "settings.incremental_alter_configs",
        resources((CLUSTER, ALTER_CONFIGS), (TOPIC, ALTER_CONFIGS), (GROUP, ALTER_CONFIGS)),
    ),
    Route("AlterPartitionReassignments", 0, 1, "topics.alter_partition_reassignments", cluster(ALTER)),
    Route("ListPartitionReassignments", 0, 0, "topics.list_partition_reassignments", cluster(DESCRIBE)),
    Route("OffsetDelete", 0, 0, "groups.offset_delete", resources((GROUP, DELETE), (TOPIC, READ))),
    Route("DescribeClientQuotas", 0, 1, "settings.describe_client_quotas", cluster(DESCRIBE_CONFIGS)),
    Route("AlterClientQuotas", 0, 1, "settings.alter_client_quotas", cluster(ALTER_CONFIGS)),
    Route(
        "DescribeUserScramCredentials", 0, 0, "security.describe_user_scram_credentials", cluster(DESCRIBE)
    ),
    Route("AlterUserScramCredentials", 0, 0, "security.alter_user_scram_credentials", cluster(ALTER)),
    Route("DescribeQuorum", 0, 2, "cluster.describe_quorum", cluster(DESCRIBE)),
    Route("UpdateFeatures", 0, 2, "cluster.update_features", cluster(ALTER)),
    Route("DescribeCluster", 0, 2, "cluster.describe_cluster", resources((CLUSTER, DESCRIBE))),
    Route("DescribeProducers", 0, 0, "transactions.describe_producers", resources((TOPIC, READ))),
    Route(
        "DescribeTransactions",
        0,
        0,
        "transactions.describe_transactions",
        resources((TRANSACTIONAL_ID, DESCRIBE), (TOPIC, DESCRIBE)),
    ),
    Route(
        "ListTransactions", 0, 2, "transactions.list_transactions", resources((TRANSACTIONAL_ID, DESCRIBE))
    ),
    Route(
        "ConsumerGroupHeartbeat",
        0,
        1,
        "groups.consumer_group_heartbeat",
        resources((GROUP, READ), (TOPIC, DESCRIBE)),
    ),
    Route(
        "ConsumerGroupDescribe",
        0,
        1,
        "groups.consumer_group_describe",
        resources((GROUP, DESCRIBE), (TOPIC, DESCRIBE)),
    ),
    Route(
        "GetTelemetrySubscriptions",
        0,
        0,
        "settings.get_telemetry_subscriptions",
        open_to_all("a client asks for what the cluster wants of it"),
    ),
    Route(
        "PushTelemetry",
        0,
        0,
        "settings.push_telemetry",
        open_to_all("a client pushes its own metrics, as far as the cluster has subscribed to them"),
    ),
    Route("ListConfigResources", 0, 1, "settings.list_config_resources", cluster(DESCRIBE_CONFIGS)),
    Route("DescribeTopicPartitions", 0, 0, "topics.describe_topic_partitions", resources((TOPIC, DESCRIBE))),
)

# Requests that only brokers send, to a broker or to the controller.
BROKER_ROUTES: Final = (
    Route("LeaderAndIsr", 0, 7, "control.leader_and_isr", cluster(CLUSTER_ACTION)),
    Route("StopReplica", 0, 4, "control.stop_replica", cluster(CLUSTER_ACTION)),
    Route("UpdateMetadata", 0, 8, "control.update_metadata", cluster(CLUSTER_ACTION)),
    Route("ControlledShutdown", 0, 3, "control.controlled_shutdown", cluster(CLUSTER_ACTION)),
    Route("AlterPartition", 0, 3, "control.alter_partition", cluster(CLUSTER_ACTION)),
    Route("AllocateProducerIds", 0, 0, "control.allocate_producer_ids", cluster(CLUSTER_ACTION)),
)


def routes(*, in_cluster: bool) -> tuple[Route, ...]:
    """The APIs of a broker: `in_cluster` says whether there may be other brokers."""
    return ROUTES + BROKER_ROUTES if in_cluster else ROUTES
