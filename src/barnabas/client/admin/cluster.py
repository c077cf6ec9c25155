"""The cluster: its brokers, their directories, leaders of partitions, reassignments, features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from barnabas import __version__
from barnabas.client.admin.arguments import as_replica
from barnabas.client.admin.core import (
    FROM_CONTROLLER,
    AdminCore,
    by_topic,
    no_such_broker,
    none_if_negative,
    outcome_of,
    raise_for,
)
from barnabas.client.admin.results import (
    ClusterDescription,
    ElectionType,
    Feature,
    LogDir,
    Reassignment,
    ReplicaOnDisk,
    TopicPartitionReplica,
    UpgradeType,
)
from barnabas.client.arguments import as_enum, as_mapped, as_number, as_numbers, as_text, as_tp, as_tps
from barnabas.errors import (
    NONE,
    ElectionNotNeeded,
    KafkaError,
    UnsupportedVersion,
    error_for_code,
)
from barnabas.model import TopicPartition
from barnabas.peers.node import Node
from barnabas.protocol.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.protocol.messages.alter_replica_log_dirs_request import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from barnabas.protocol.messages.api_versions_request import ApiVersionsRequest
from barnabas.protocol.messages.describe_cluster_request import DescribeClusterRequest
from barnabas.protocol.messages.describe_log_dirs_request import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from barnabas.protocol.messages.describe_log_dirs_response import DescribeLogDirsResult
from barnabas.protocol.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from barnabas.protocol.messages.list_partition_reassignments_request import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from barnabas.protocol.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest


class ClusterAdmin(AdminCore):
    async def describe_cluster(
        self, *, include_fenced: bool = False, timeout_ms: float | None = None
    ) -> ClusterDescription:
        """The id of the cluster, its brokers and its controller."""

        async def ask() -> ClusterDescription:
            request = DescribeClusterRequest(include_fenced_brokers=include_fenced)
            try:
                answer = await self._request(None, request)
            except UnsupportedVersion:
                return await self._describe_by_metadata()
            raise_for(answer.error_code, answer.error_message, "the cluster")
            return ClusterDescription(
                cluster_id=answer.cluster_id,
                controller_id=none_if_negative(answer.controller_id),
                nodes=tuple(
                    sorted(Node(each.broker_id, each.host, each.port, each.rack) for each in answer.brokers)
                ),
                fenced=frozenset(each.broker_id for each in answer.brokers if each.is_fenced),
            )

        return await self._once("describing the cluster", ask, timeout_ms)

    async def _describe_by_metadata(self) -> ClusterDescription:
        answer = await self._metadata(())
        return ClusterDescription(
            cluster_id=answer.cluster_id,
            controller_id=none_if_negative(answer.controller_id),
            nodes=tuple(
                sorted(Node(each.node_id, each.host, each.port, each.rack) for each in answer.brokers)
            ),
        )

    async def describe_log_dirs(
        self,
        brokers: Iterable[int] | None = None,
        *,
        partitions: Iterable[TopicPartition] | None = None,
        timeout_ms: float | None = None,
    ) -> dict[int, dict[str, LogDir]]:
        """The directories of brokers by path, with the replicas in them: of these partitions, or all."""
        topics = None
        if partitions is not None:
            topics = [
                DescribableLogDirTopic(topic=name, partitions=indexes)
                for name, indexes in by_topic(as_tps(partitions)).items()
            ]

        async def ask(node: int) -> dict[str, LogDir]:
            answer = await self._request(node, DescribeLogDirsRequest(topics=topics))
            raise_for(answer.error_code, None, f"log directories of broker {node}")
            return {each.log_dir: _log_dir(each) for each in answer.results}

        return await self._every_broker("describing log directories", ask, timeout_ms, brokers)

    async def alter_replica_log_dirs(
        self, moves: Mapping[TopicPartitionReplica, str], *, timeout_ms: float | None = None
    ) -> None:
        """Moves replicas to other directories of their brokers; `describe_log_dirs` shows the progress."""
        wanted = as_mapped(
            moves, "moves", "{TopicPartitionReplica('orders', 0, 1): '/disk2'}", as_replica, as_text
        )

        async def locate(
            replicas: list[TopicPartitionReplica],
        ) -> dict[TopicPartitionReplica, int | KafkaError | None]:
            known = set(await self._all_brokers())
            return {
                replica: replica.broker_id
                if replica.broker_id in known
                else no_such_broker(replica.broker_id)
                for replica in replicas
            }

        async def ask(
            node: int | None, replicas: list[TopicPartitionReplica]
        ) -> dict[TopicPartitionReplica, KafkaError | None]:
            assert node is not None
            by_path: dict[str, list[TopicPartition]] = {}
            for replica in replicas:
                partition = TopicPartition(replica.topic, replica.partition)
                by_path.setdefault(wanted[replica], []).append(partition)
            request = AlterReplicaLogDirsRequest(
                dirs=[
                    AlterReplicaLogDir(
                        path=path,
                        topics=[
                            AlterReplicaLogDirTopic(name=name, partitions=indexes)
                            for name, indexes in by_topic(partitions).items()
                        ],
                    )
                    for path, partitions in by_path.items()
                ]
            )
            answer = await self._request(node, request)
            return {
                (replica := TopicPartitionReplica(topic.topic_name, each.partition_index, node)): outcome_of(
                    each.error_code, None, replica, None
                )
                for topic in answer.results
                for each in topic.partitions
            }

        await self._each("moving replicas", wanted, locate, ask, timeout_ms)

    async def elect_leaders(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        election: ElectionType | str = ElectionType.PREFERRED,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, bool]:
        """Elects leaders, of all partitions if none is named; whether there was anything to change in each."""
        wanted = None if partitions is None else by_topic(as_tps(partitions))
        chosen = as_enum(election, "election", ElectionType)

        async def ask() -> dict[TopicPartition, bool | KafkaError]:
            topics = None
            if wanted is not None:
                topics = [TopicPartitions(topic=name, partitions=indexes) for name, indexes in wanted.items()]
            request = ElectLeadersRequest(
                election_type=int(chosen),
                topic_partitions=topics,
                timeout_ms=int(self._timeout_ms(timeout_ms)),
            )
            answer = await self._request(await self._find_controller(), request)
            raise_for(answer.error_code, None, "the election")
            outcomes: dict[TopicPartition, bool | KafkaError] = {}
            for topic in answer.replica_election_results:
                for each in topic.partition_result:
                    partition = TopicPartition(topic.topic, each.partition_id)
                    if each.error_code == ElectionNotNeeded.code:
                        outcomes[partition] = False
                    else:
                        outcomes[partition] = outcome_of(each.error_code, each.error_message, partition, True)
            return outcomes

        outcomes = await self._once("electing leaders", ask, timeout_ms, retriable=FROM_CONTROLLER)
        return self._results("electing leaders", outcomes)

    async def alter_reassignments(
        self,
        replicas: Mapping[TopicPartition, Sequence[int] | None],
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """Gives partitions other replicas; None cancels a reassignment that is under way."""
        wanted = as_mapped(replicas, "replicas", "{('orders', 0): [1, 2]}", as_tp, _replicas)

        async def ask(
            node: int | None, partitions: list[TopicPartition]
        ) -> dict[TopicPartition, KafkaError | None]:
            request = AlterPartitionReassignmentsRequest(
                timeout_ms=int(self._timeout_ms(timeout_ms)),
                topics=[
                    ReassignableTopic(
                        name=name,
                        partitions=[
                            ReassignablePartition(
                                partition_index=index, replicas=wanted[TopicPartition(name, index)]
                            )
                            for index in indexes
                        ],
                    )
                    for name, indexes in by_topic(partitions).items()
                ],
            )
            answer = await self._request(node, request)
            raise_for(answer.error_code, answer.error_message, "the reassignment")
            return {
                (partition := TopicPartition(topic.name, each.partition_index)): outcome_of(
                    each.error_code, each.error_message, partition, None
                )
                for topic in answer.responses
                for each in topic.partitions
            }

        await self._each(
            "reassigning partitions",
            wanted,
            self._at_controller,
            ask,
            timeout_ms,
            retriable=FROM_CONTROLLER,
        )

    async def list_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """The reassignments that are under way, of these partitions or all."""
        topics = None
        if partitions is not None:
            topics = [
                ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes)
                for name, indexes in by_topic(as_tps(partitions)).items()
            ]

        async def ask() -> dict[TopicPartition, Reassignment]:
            request = ListPartitionReassignmentsRequest(
                timeout_ms=int(self._timeout_ms(timeout_ms)), topics=topics
            )
            answer = await self._request(await self._find_controller(), request)
            raise_for(answer.error_code, answer.error_message, "reassignments")
            return {
                TopicPartition(topic.name, each.partition_index): Reassignment(
                    replicas=tuple(each.replicas),
                    adding_replicas=tuple(each.adding_replicas),
                    removing_replicas=tuple(each.removing_replicas),
                )
                for topic in answer.topics
                for each in topic.partitions
            }

        return await self._once("listing reassignments", ask, timeout_ms)

    async def describe_features(self, *, timeout_ms: float | None = None) -> dict[str, Feature]:
        """The features that a broker knows, and the levels that the cluster has agreed on."""

        async def ask() -> dict[str, Feature]:
            return await self._features_of(None)

        return await self._once("describing features", ask, timeout_ms)

    async def describe_broker_features(
        self, brokers: Iterable[int] | None = None, *, timeout_ms: float | None = None
    ) -> dict[int, dict[str, Feature]]:
        """The features that each broker knows, of all brokers if none is named."""
        return await self._every_broker("describing features", self._features_of, timeout_ms, brokers)

    async def _features_of(self, node: int | None) -> dict[str, Feature]:
        answer = await self._request(
            node, ApiVersionsRequest(client_software_name="barnabas", client_software_version=__version__)
        )
        raise_for(answer.error_code, None, "features")
        levels = {each.name: each.max_version_level for each in answer.finalized_features}
        known = {each.name: (each.min_version, each.max_version) for each in answer.supported_features}
        return {
            name: Feature(
                name=name,
                level=levels.get(name),
                min_version=known.get(name, (0, 0))[0],
                max_version=known.get(name, (0, 0))[1],
                epoch=none_if_negative(answer.finalized_features_epoch),
            )
            for name in sorted(levels.keys() | known.keys())
        }

    async def update_features(
        self,
        levels: Mapping[str, int],
        *,
        upgrade: UpgradeType | str = UpgradeType.UPGRADE,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> None:
        """Changes the levels of features in the cluster; all of them or none."""
        wanted = as_mapped(levels, "levels", "{'metadata.version': 25}", as_text, as_number)
        chosen = as_enum(upgrade, "upgrade", UpgradeType)

        async def ask() -> None:
            request = UpdateFeaturesRequest(
                timeout_ms=int(self._timeout_ms(timeout_ms)),
                feature_updates=[
                    FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=int(chosen))
                    for name, level in wanted.items()
                ],
                validate_only=validate_only,
            )
            answer = await self._request(await self._find_controller(), request)
            raise_for(answer.error_code, answer.error_message, "features")
            for each in answer.results:
                raise_for(each.error_code, each.error_message, f"feature {each.feature}")

        await self._once("updating features", ask, timeout_ms, retriable=FROM_CONTROLLER)


def _replicas(given: object, argument: str) -> list[int] | None:
    return None if given is None else as_numbers(given, argument)


def _log_dir(result: DescribeLogDirsResult) -> LogDir:
    return LogDir(
        path=result.log_dir,
        error=None if result.error_code == NONE else error_for_code(result.error_code),
        total_bytes=none_if_negative(result.total_bytes),
        usable_bytes=none_if_negative(result.usable_bytes),
        is_cordoned=result.is_cordoned,
        replicas={
            TopicPartition(topic.name, each.partition_index): ReplicaOnDisk(
                size_bytes=each.partition_size, offset_lag=each.offset_lag, is_future=each.is_future_key
            )
            for topic in result.topics
            for each in topic.partitions
        },
    )
