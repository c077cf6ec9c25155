"""The table of APIs: key, name, versions and flexible start of every request and its response.

Everything about an API is found from its row: the message types and the versions of both headers.
"""

from __future__ import annotations

from typing import Any, Final

from barnabas.errors import InvalidRequest
from barnabas.protocol.messages import message_class

_API_VERSIONS_KEY: Final = 18
_CONTROLLED_SHUTDOWN_KEY: Final = 7


class Api:
    """Versions are those of the schemas, both inclusive: the versions that we can read and write.

    A broker may offer fewer.
    """

    __slots__ = ("first_flexible_version", "first_version", "key", "last_version", "name")

    def __init__(
        self, key: int, name: str, first_version: int, last_version: int, first_flexible_version: int | None
    ) -> None:
        self.key = key
        self.name = name
        self.first_version = first_version
        self.last_version = last_version
        self.first_flexible_version = first_flexible_version

    def __repr__(self) -> str:
        return f"Api({self.name})"

    def has_version(self, version: int) -> bool:
        return self.first_version <= version <= self.last_version

    def is_flexible(self, version: int) -> bool:
        return self.first_flexible_version is not None and version >= self.first_flexible_version

    @property
    def request_name(self) -> str:
        return self.name + "Request"

    @property
    def response_name(self) -> str:
        return self.name + "Response"

    def request_class(self) -> type[Any]:
        return message_class(self.request_name)

    def response_class(self) -> type[Any]:
        return message_class(self.response_name)

    def request_header_version(self, version: int) -> int:
        if self.key == _CONTROLLED_SHUTDOWN_KEY and version == 0:
            return 0
        return 2 if self.is_flexible(version) else 1

    def response_header_version(self, version: int) -> int:
        """A client that asks for the versions does not know yet what the broker can do: always the oldest header."""
        return 1 if self.is_flexible(version) and self.key != _API_VERSIONS_KEY else 0


APIS: Final = (
    Api(0, "Produce", 0, 13, 9),
    Api(1, "Fetch", 0, 18, 12),
    Api(2, "ListOffsets", 0, 11, 6),
    Api(3, "Metadata", 0, 13, 9),
    Api(4, "LeaderAndIsr", 0, 7, 4),
    Api(5, "StopReplica", 0, 4, 2),
    Api(6, "UpdateMetadata", 0, 8, 6),
    Api(7, "ControlledShutdown", 0, 3, 3),
    Api(8, "OffsetCommit", 0, 10, 8),
    Api(9, "OffsetFetch", 0, 10, 6),
    Api(10, "FindCoordinator", 0, 6, 3),
    Api(11, "JoinGroup", 0, 9, 6),
    Api(12, "Heartbeat", 0, 4, 4),
    Api(13, "LeaveGroup", 0, 5, 4),
    Api(14, "SyncGroup", 0, 5, 4),
    Api(15, "DescribeGroups", 0, 6, 5),
    Api(16, "ListGroups", 0, 5, 3),
    Api(17, "SaslHandshake", 0, 1, None),
    Api(18, "ApiVersions", 0, 4, 3),
    Api(19, "CreateTopics", 0, 7, 5),
    Api(20, "DeleteTopics", 0, 6, 4),
    Api(21, "DeleteRecords", 0, 2, 2),
    Api(22, "InitProducerId", 0, 6, 2),
    Api(23, "OffsetForLeaderEpoch", 0, 4, 4),
    Api(24, "AddPartitionsToTxn", 0, 5, 3),
    Api(25, "AddOffsetsToTxn", 0, 4, 3),
    Api(26, "EndTxn", 0, 5, 3),
    Api(27, "WriteTxnMarkers", 0, 2, 1),
    Api(28, "TxnOffsetCommit", 0, 5, 3),
    Api(29, "DescribeAcls", 0, 3, 2),
    Api(30, "CreateAcls", 0, 3, 2),
    Api(31, "DeleteAcls", 0, 3, 2),
    Api(32, "DescribeConfigs", 0, 4, 4),
    Api(33, "AlterConfigs", 0, 2, 2),
    Api(34, "AlterReplicaLogDirs", 0, 2, 2),
    Api(35, "DescribeLogDirs", 0, 5, 2),
    Api(36, "SaslAuthenticate", 0, 2, 2),
    Api(37, "CreatePartitions", 0, 3, 2),
    Api(38, "CreateDelegationToken", 0, 3, 2),
    Api(39, "RenewDelegationToken", 0, 2, 2),
    Api(40, "ExpireDelegationToken", 0, 2, 2),
    Api(41, "DescribeDelegationToken", 0, 3, 2),
    Api(42, "DeleteGroups", 0, 2, 2),
    Api(43, "ElectLeaders", 0, 2, 2),
    Api(44, "IncrementalAlterConfigs", 0, 1, 1),
    Api(45, "AlterPartitionReassignments", 0, 1, 0),
    Api(46, "ListPartitionReassignments", 0, 0, 0),
    Api(47, "OffsetDelete", 0, 0, None),
    Api(48, "DescribeClientQuotas", 0, 1, 1),
    Api(49, "AlterClientQuotas", 0, 1, 1),
    Api(50, "DescribeUserScramCredentials", 0, 0, 0),
    Api(51, "AlterUserScramCredentials", 0, 0, 0),
    Api(52, "Vote", 0, 2, 0),
    Api(53, "BeginQuorumEpoch", 0, 1, 1),
    Api(54, "EndQuorumEpoch", 0, 1, 1),
    Api(55, "DescribeQuorum", 0, 2, 0),
    Api(56, "AlterPartition", 0, 3, 0),
    Api(57, "UpdateFeatures", 0, 2, 0),
    Api(58, "Envelope", 0, 0, 0),
    Api(59, "FetchSnapshot", 0, 1, 0),
    Api(60, "DescribeCluster", 0, 2, 0),
    Api(61, "DescribeProducers", 0, 0, 0),
    Api(62, "BrokerRegistration", 0, 4, 0),
    Api(63, "BrokerHeartbeat", 0, 2, 0),
    Api(64, "UnregisterBroker", 0, 0, 0),
    Api(65, "DescribeTransactions", 0, 0, 0),
    Api(66, "ListTransactions", 0, 2, 0),
    Api(67, "AllocateProducerIds", 0, 0, 0),
    Api(68, "ConsumerGroupHeartbeat", 0, 1, 0),
    Api(69, "ConsumerGroupDescribe", 0, 1, 0),
    Api(70, "ControllerRegistration", 0, 0, 0),
    Api(71, "GetTelemetrySubscriptions", 0, 0, 0),
    Api(72, "PushTelemetry", 0, 0, 0),
    Api(73, "AssignReplicasToDirs", 0, 0, 0),
    Api(74, "ListConfigResources", 0, 1, 0),
    Api(75, "DescribeTopicPartitions", 0, 0, 0),
    Api(76, "ShareGroupHeartbeat", 0, 1, 0),
    Api(77, "ShareGroupDescribe", 0, 1, 0),
    Api(78, "ShareFetch", 0, 2, 0),
    Api(79, "ShareAcknowledge", 0, 2, 0),
    Api(80, "AddRaftVoter", 0, 1, 0),
    Api(81, "RemoveRaftVoter", 0, 0, 0),
    Api(82, "UpdateRaftVoter", 0, 0, 0),
    Api(83, "InitializeShareGroupState", 0, 0, 0),
    Api(84, "ReadShareGroupState", 0, 0, 0),
    Api(85, "WriteShareGroupState", 0, 1, 0),
    Api(86, "DeleteShareGroupState", 0, 0, 0),
    Api(87, "ReadShareGroupStateSummary", 0, 1, 0),
    Api(88, "StreamsGroupHeartbeat", 0, 0, 0),
    Api(89, "StreamsGroupDescribe", 0, 0, 0),
    Api(90, "DescribeShareGroupOffsets", 0, 1, 0),
    Api(91, "AlterShareGroupOffsets", 0, 0, 0),
    Api(92, "DeleteShareGroupOffsets", 0, 0, 0),
)

_BY_KEY: Final = {api.key: api for api in APIS}
_BY_NAME: Final = {api.name: api for api in APIS}


def api_for_key(key: int) -> Api:
    """The row of an API key that a peer has sent."""
    api = _BY_KEY.get(key)
    if api is None:
        raise InvalidRequest(f"unknown API key {key}")
    return api


def api_for_name(name: str) -> Api:
    """The row of an API by Kafka's name for it, such as "Fetch"; KeyError if there is none."""
    return _BY_NAME[name]
