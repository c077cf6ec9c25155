"""The APIs that this broker serves, with their versions and the modules of their handlers: one row per API.

Other versions are not advertised, and a client that uses one nevertheless is disconnected. The rows are read at start;
the module of a handler is loaded with the first request of its API. Requests that only brokers send are served in a
cluster with ZooKeeper, and not advertised elsewhere.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from barnabas.protocol.apis import Api, api_for_name


class Route(NamedTuple):
    name: str
    first_version: int
    last_version: int
    # Below `barnabas.broker.handlers`.
    module: str

    @property
    def api(self) -> Api:
        return api_for_name(self.name)


ROUTES: Final = (
    Route("Produce", 0, 13, "records.produce"),
    Route("Fetch", 0, 18, "records.fetch"),
    Route("ListOffsets", 0, 11, "records.list_offsets"),
    Route("Metadata", 0, 13, "topics.metadata"),
    Route("OffsetCommit", 0, 10, "groups.offset_commit"),
    Route("OffsetFetch", 0, 10, "groups.offset_fetch"),
    Route("FindCoordinator", 0, 6, "groups.find_coordinator"),
    Route("JoinGroup", 0, 9, "groups.join_group"),
    Route("Heartbeat", 0, 4, "groups.heartbeat"),
    Route("LeaveGroup", 0, 5, "groups.leave_group"),
    Route("SyncGroup", 0, 5, "groups.sync_group"),
    Route("DescribeGroups", 0, 6, "groups.describe_groups"),
    Route("ListGroups", 0, 5, "groups.list_groups"),
    Route("ApiVersions", 0, 4, "cluster.api_versions"),
    Route("CreateTopics", 0, 7, "topics.create_topics"),
    Route("DeleteTopics", 0, 6, "topics.delete_topics"),
    Route("DeleteRecords", 0, 2, "records.delete_records"),
    # Version 6 asks for two-phase commit, which needs a transaction coordinator that keeps prepared transactions.
    Route("InitProducerId", 0, 5, "transactions.init_producer_id"),
    Route("OffsetForLeaderEpoch", 0, 4, "records.offset_for_leader_epoch"),
    Route("AddPartitionsToTxn", 0, 5, "transactions.add_partitions_to_txn"),
    Route("AddOffsetsToTxn", 0, 4, "transactions.add_offsets_to_txn"),
    Route("EndTxn", 0, 5, "transactions.end_txn"),
    Route("WriteTxnMarkers", 0, 2, "transactions.write_txn_markers"),
    Route("TxnOffsetCommit", 0, 5, "groups.txn_offset_commit"),
    Route("DescribeAcls", 0, 3, "security.describe_acls"),
    Route("CreateAcls", 0, 3, "security.create_acls"),
    Route("DeleteAcls", 0, 3, "security.delete_acls"),
    Route("DescribeConfigs", 0, 4, "settings.describe_configs"),
    Route("AlterConfigs", 0, 2, "settings.alter_configs"),
    Route("AlterReplicaLogDirs", 0, 2, "cluster.alter_replica_log_dirs"),
    Route("DescribeLogDirs", 0, 5, "cluster.describe_log_dirs"),
    Route("CreatePartitions", 0, 3, "topics.create_partitions"),
    Route("DeleteGroups", 0, 2, "groups.delete_groups"),
    Route("ElectLeaders", 0, 2, "topics.elect_leaders"),
    Route("IncrementalAlterConfigs", 0, 1, "settings.incremental_alter_configs"),
    Route("AlterPartitionReassignments", 0, 1, "topics.alter_partition_reassignments"),
    Route("ListPartitionReassignments", 0, 0, "topics.list_partition_reassignments"),
    Route("OffsetDelete", 0, 0, "groups.offset_delete"),
    Route("DescribeClientQuotas", 0, 1, "settings.describe_client_quotas"),
    Route("AlterClientQuotas", 0, 1, "settings.alter_client_quotas"),
    Route("DescribeUserScramCredentials", 0, 0, "security.describe_user_scram_credentials"),
    Route("AlterUserScramCredentials", 0, 0, "security.alter_user_scram_credentials"),
    Route("DescribeQuorum", 0, 2, "cluster.describe_quorum"),
    Route("UpdateFeatures", 0, 2, "cluster.update_features"),
    Route("DescribeCluster", 0, 2, "cluster.describe_cluster"),
    Route("DescribeProducers", 0, 0, "transactions.describe_producers"),
    Route("DescribeTransactions", 0, 0, "transactions.describe_transactions"),
    Route("ListTransactions", 0, 2, "transactions.list_transactions"),
    Route("ConsumerGroupHeartbeat", 0, 1, "groups.consumer_group_heartbeat"),
    Route("ConsumerGroupDescribe", 0, 1, "groups.consumer_group_describe"),
    Route("GetTelemetrySubscriptions", 0, 0, "settings.get_telemetry_subscriptions"),
    Route("PushTelemetry", 0, 0, "settings.push_telemetry"),
    Route("ListConfigResources", 0, 1, "settings.list_config_resources"),
    Route("DescribeTopicPartitions", 0, 0, "topics.describe_topic_partitions"),
)

# Requests that only brokers send, to a broker or to the controller.
BROKER_ROUTES: Final = (
    Route("LeaderAndIsr", 0, 7, "control.leader_and_isr"),
    Route("StopReplica", 0, 4, "control.stop_replica"),
    Route("UpdateMetadata", 0, 8, "control.update_metadata"),
    Route("ControlledShutdown", 0, 3, "control.controlled_shutdown"),
    Route("AlterPartition", 0, 3, "control.alter_partition"),
    Route("AllocateProducerIds", 0, 0, "control.allocate_producer_ids"),
)


def routes(*, in_cluster: bool) -> tuple[Route, ...]:
    """The APIs of a broker: `in_cluster` says whether ZooKeeper coordinates the cluster."""
    return ROUTES + BROKER_ROUTES if in_cluster else ROUTES
