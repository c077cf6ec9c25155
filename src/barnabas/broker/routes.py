"""Which APIs this broker answers, in which versions, and where: one row an API.

A version that is not listed here is not advertised, and a client that asks for it all the same is cut off. Rows are
found at start; a handler's module is loaded when its API is first asked for.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from barnabas.protocol.apis import Api, api_for_name


class Route(NamedTuple):
    name: str
    first_version: int
    last_version: int
    module: str

    @property
    def api(self) -> Api:
        return api_for_name(self.name)

    def load(self) -> Callable[..., Any]:
        handle: Callable[..., Any] = importlib.import_module(f"barnabas.broker.handlers.{self.module}").handle
        return handle


ROUTES: Final = (
    Route("Produce", 0, 13, "produce"),
    Route("Fetch", 0, 18, "fetch"),
    Route("ListOffsets", 0, 11, "list_offsets"),
    Route("Metadata", 0, 13, "metadata"),
    Route("OffsetCommit", 0, 10, "offset_commit"),
    Route("OffsetFetch", 0, 10, "offset_fetch"),
    Route("FindCoordinator", 0, 6, "find_coordinator"),
    Route("JoinGroup", 0, 9, "join_group"),
    Route("Heartbeat", 0, 4, "heartbeat"),
    Route("LeaveGroup", 0, 5, "leave_group"),
    Route("SyncGroup", 0, 5, "sync_group"),
    Route("DescribeGroups", 0, 6, "describe_groups"),
    Route("ListGroups", 0, 5, "list_groups"),
    Route("ApiVersions", 0, 4, "api_versions"),
    Route("CreateTopics", 0, 7, "create_topics"),
    Route("DeleteTopics", 0, 6, "delete_topics"),
    Route("DeleteRecords", 0, 2, "delete_records"),
    # Version 6 asks for two-phase commit, which needs a transaction coordinator that keeps prepared transactions.
    Route("InitProducerId", 0, 5, "init_producer_id"),
    Route("OffsetForLeaderEpoch", 0, 4, "offset_for_leader_epoch"),
    Route("AddPartitionsToTxn", 0, 5, "add_partitions_to_txn"),
    Route("AddOffsetsToTxn", 0, 4, "add_offsets_to_txn"),
    Route("EndTxn", 0, 5, "end_txn"),
    Route("WriteTxnMarkers", 0, 2, "write_txn_markers"),
    Route("TxnOffsetCommit", 0, 5, "txn_offset_commit"),
    Route("DescribeAcls", 0, 3, "describe_acls"),
    Route("CreateAcls", 0, 3, "create_acls"),
    Route("DeleteAcls", 0, 3, "delete_acls"),
    Route("DescribeConfigs", 0, 4, "describe_configs"),
    Route("AlterConfigs", 0, 2, "alter_configs"),
    Route("AlterReplicaLogDirs", 0, 2, "alter_replica_log_dirs"),
    Route("DescribeLogDirs", 0, 5, "describe_log_dirs"),
    Route("CreatePartitions", 0, 3, "create_partitions"),
    Route("DeleteGroups", 0, 2, "delete_groups"),
    Route("ElectLeaders", 0, 2, "elect_leaders"),
    Route("IncrementalAlterConfigs", 0, 1, "incremental_alter_configs"),
    Route("AlterPartitionReassignments", 0, 1, "alter_partition_reassignments"),
    Route("ListPartitionReassignments", 0, 0, "list_partition_reassignments"),
    Route("OffsetDelete", 0, 0, "offset_delete"),
    Route("DescribeClientQuotas", 0, 1, "describe_client_quotas"),
    Route("AlterClientQuotas", 0, 1, "alter_client_quotas"),
    Route("DescribeUserScramCredentials", 0, 0, "describe_user_scram_credentials"),
    Route("AlterUserScramCredentials", 0, 0, "alter_user_scram_credentials"),
    Route("DescribeQuorum", 0, 2, "describe_quorum"),
    Route("UpdateFeatures", 0, 2, "update_features"),
    Route("DescribeCluster", 0, 2, "describe_cluster"),
    Route("DescribeProducers", 0, 0, "describe_producers"),
    Route("DescribeTransactions", 0, 0, "describe_transactions"),
    Route("ListTransactions", 0, 2, "list_transactions"),
    Route("ConsumerGroupHeartbeat", 0, 1, "consumer_group_heartbeat"),
    Route("ConsumerGroupDescribe", 0, 1, "consumer_group_describe"),
    Route("GetTelemetrySubscriptions", 0, 0, "get_telemetry_subscriptions"),
    Route("PushTelemetry", 0, 0, "push_telemetry"),
    Route("ListConfigResources", 0, 1, "list_config_resources"),
    Route("DescribeTopicPartitions", 0, 0, "describe_topic_partitions"),
)
