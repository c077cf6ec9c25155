"""Topics, their partitions, and the offsets of their records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from barnabas.client.admin.arguments import as_replica
from barnabas.client.admin.core import (
    FROM_CONTROLLER,
    ONLY_NETWORK,
    AdminCore,
    by_topic,
    config_text,
    error_of,
    no_such_broker,
    none_if_negative,
    outcome_of,
    topic_id_text,
)
from barnabas.client.admin.results import (
    BROKER_DEFAULT,
    ConfigEntry,
    ConfigSource,
    ConfigValue,
    CreatedTopic,
    IsolationLevel,
    ListedOffset,
    NewTopic,
    OffsetSpec,
    PartitionDescription,
    TopicDescription,
    TopicListing,
    TopicPartitionReplica,
)
from barnabas.client.arguments import (
    as_enum,
    as_items,
    as_mapped,
    as_number,
    as_numbers,
    as_text,
    as_tp,
    as_tps,
)
from barnabas.errors import NONE, InvalidRequest, KafkaError, ThrottlingQuotaExceeded, error_for_code
from barnabas.model import TopicPartition
from barnabas.protocol.messages.create_partitions_request import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas.protocol.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.protocol.messages.create_topics_response import CreatableTopicResult
from barnabas.protocol.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.metadata_response import MetadataResponse, MetadataResponseTopic

Topics: TypeAlias = str | NewTopic | Iterable[str | NewTopic] | Mapping[str, int]
"""One topic or several; a mapping has their numbers of partitions."""

HIGH_WATERMARK = -1
"""In `delete_records`: everything that can be read so far."""

# The replica id of a client that reads from followers as well, to compare replicas.
_ANY_REPLICA = -2
_MAY_PASS = (*FROM_CONTROLLER, ThrottlingQuotaExceeded)


class TopicsAdmin(AdminCore):
    async def create_topics(
        self,
        topics: Topics,
        *,
        partitions: int = BROKER_DEFAULT,
        replication_factor: int = BROKER_DEFAULT,
        configs: Mapping[str, ConfigValue | None] | None = None,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> dict[str, CreatedTopic]:
        """Creates topics. The keywords hold for those that are given by name alone."""
        given = _new_topics(topics, partitions, replication_factor, _configs(configs, "configs"))
        wanted = {topic.name: _creatable(topic) for topic in given}

        async def ask(node: int | None, names: list[str]) -> dict[str, CreatedTopic | KafkaError]:
            request = CreateTopicsRequest(
                topics=[wanted[name] for name in names],
                timeout_ms=int(self._timeout_ms(timeout_ms)),
                validate_only=validate_only,
            )
            answer = await self._request(node, request)
            return {
                each.name: outcome_of(
                    each.error_code, each.error_message, f"topic {each.name}", _created(each)
                )
                for each in answer.topics
            }

        return await self._each(
            "creating topics", wanted, self._at_controller, ask, timeout_ms, retriable=_MAY_PASS
        )

    async def delete_topics(self, topics: str | Iterable[str], *, timeout_ms: float | None = None) -> None:
        """Deletes topics with all their records."""

        async def ask(node: int | None, names: list[str]) -> dict[str, KafkaError | None]:
            request = DeleteTopicsRequest(
                topics=[DeleteTopicState(name=name) for name in names],
                timeout_ms=int(self._timeout_ms(timeout_ms)),
            )
            answer = await self._request(node, request)
            return {
                each.name: outcome_of(each.error_code, each.error_message, f"topic {each.name}", None)
                for each in answer.responses
            }

        await self._each(
            "deleting topics", names_of(topics), self._at_controller, ask, timeout_ms, retriable=_MAY_PASS
        )

    async def list_topics(
        self, *, include_internal: bool = False, timeout_ms: float | None = None
    ) -> list[TopicListing]:
        """All topics by name; those that brokers keep for themselves if they are asked for."""

        async def ask() -> MetadataResponse:
            return await self._metadata(None)

        answer = await self._once("listing topics", ask, timeout_ms)
        listed = [
            TopicListing(
                name=topic.name or "",
                topic_id=topic_id_text(topic.topic_id),
                is_internal=topic.is_internal,
                partitions=len(topic.partitions),
            )
            for topic in answer.topics
            if include_internal or not topic.is_internal
        ]
        return sorted(listed, key=lambda topic: topic.name)

    async def describe_topics(
        self, topics: str | Iterable[str] | None = None, *, timeout_ms: float | None = None
    ) -> dict[str, TopicDescription]:
        """Leaders and replicas of the topics that are named, else of all, internal ones too."""
        if topics is None:

            async def ask_all() -> MetadataResponse:
                return await self._metadata(None)

            answer = await self._once("describing topics", ask_all, timeout_ms)
            for topic in answer.topics:
                # One that is in the making, say, is shown as it stands.
                if topic.error_code != NONE and error_for_code(topic.error_code).retriable:
                    topic.error_code = NONE
            described = {each.name or "": _described(each) for each in answer.topics}
            return self._results("describing topics", dict(sorted(described.items())))

        async def ask(node: int | None, names: list[str]) -> dict[str, TopicDescription | KafkaError]:
            return {each.name or "": _described(each) for each in (await self._metadata(names)).topics}

        return await self._each(
            "describing topics", names_of(topics), self._at_any, ask, timeout_ms, retriable=ONLY_NETWORK
        )

    async def create_partitions(
        self,
        counts: Mapping[str, int],
        *,
        assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> None:
        """Gives topics more partitions: `counts` are the new totals, `assignments` the replicas of each new one."""
        totals = as_mapped(counts, "counts", "{'orders': 6}", as_text, as_number)
        placed = as_mapped(assignments or {}, "assignments", "{'orders': [[1, 2]]}", as_text, _placed)

        async def ask(node: int | None, names: list[str]) -> dict[str, KafkaError | None]:
            request = CreatePartitionsRequest(
                topics=[
                    CreatePartitionsTopic(
                        name=name,
                        count=totals[name],
                        assignments=[CreatePartitionsAssignment(broker_ids=each) for each in placed[name]]
                        if name in placed
                        else None,
                    )
                    for name in names
                ],
                timeout_ms=int(self._timeout_ms(timeout_ms)),
                validate_only=validate_only,
            )
            answer = await self._request(node, request)
            return {
                each.name: outcome_of(each.error_code, each.error_message, f"topic {each.name}", None)
                for each in answer.results
            }

        await self._each(
            "creating partitions", totals, self._at_controller, ask, timeout_ms, retriable=_MAY_PASS
        )

    async def delete_records(
        self, before: Mapping[TopicPartition, int], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Deletes the records before an offset (HIGH_WATERMARK for all); the new first offset of each partition."""
        wanted = as_mapped(before, "before", "{('orders', 0): 5}", as_tp, as_number)

        async def ask(
            node: int | None, partitions: list[TopicPartition]
        ) -> dict[TopicPartition, int | KafkaError]:
            request = DeleteRecordsRequest(
                topics=[
                    DeleteRecordsTopic(
                        name=name,
                        partitions=[
                            DeleteRecordsPartition(
                                partition_index=index, offset=wanted[TopicPartition(name, index)]
                            )
                            for index in indexes
                        ],
                    )
                    for name, indexes in by_topic(partitions).items()
                ],
                timeout_ms=int(self._timeout_ms(timeout_ms)),
            )
            answer = await self._request(node, request)
            return {
                (partition := TopicPartition(topic.name, each.partition_index)): outcome_of(
                    each.error_code, None, partition, each.low_watermark
                )
                for topic in answer.topics
                for each in topic.partitions
            }

        return await self._each("deleting records", wanted, self._at_leaders, ask, timeout_ms)

    async def list_offsets(
        self,
        partitions: Mapping[TopicPartition, int] | Iterable[TopicPartition],
        *,
        isolation: IsolationLevel | str = IsolationLevel.READ_UNCOMMITTED,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, ListedOffset]:
        """Offsets by timestamp or OffsetSpec; the latest for partitions that come without."""
        if isinstance(partitions, Mapping):
            wanted = as_mapped(partitions, "partitions", "", as_tp, _offset_spec)
        else:
            wanted = dict.fromkeys(as_tps(partitions), int(OffsetSpec.LATEST))
        level = as_enum(isolation, "isolation", IsolationLevel)

        async def ask(
            node: int | None, asked: list[TopicPartition]
        ) -> dict[TopicPartition, ListedOffset | KafkaError]:
            request = ListOffsetsRequest(
                replica_id=-1,
                isolation_level=int(level),
                topics=[
                    ListOffsetsTopic(
                        name=name,
                        partitions=[
                            ListOffsetsPartition(
                                partition_index=index, timestamp=wanted[TopicPartition(name, index)]
                            )
                            for index in indexes
                        ],
                    )
                    for name, indexes in by_topic(asked).items()
                ],
                timeout_ms=int(self._timeout_ms(timeout_ms)),
            )
            answer = await self._request(node, request)
            return {
                (partition := TopicPartition(topic.name, each.partition_index)): outcome_of(
                    each.error_code,
                    None,
                    partition,
                    ListedOffset(
                        offset=none_if_negative(each.offset),
                        timestamp_ms=none_if_negative(each.timestamp),
                        leader_epoch=none_if_negative(each.leader_epoch),
                    ),
                )
                for topic in answer.topics
                for each in topic.partitions
            }

        return await self._each("listing offsets", wanted, self._at_leaders, ask, timeout_ms)

    async def list_replica_offsets(
        self, replicas: Iterable[TopicPartitionReplica], *, timeout_ms: float | None = None
    ) -> dict[TopicPartitionReplica, int]:
        """The end offset of the log of each replica, leader or follower. The difference is how far it is behind."""
        wanted = [
            as_replica(each, "replicas")
            for each in as_items(replicas, "replicas", "[TopicPartitionReplica('orders', 0, 1)]")
        ]

        async def locate(
            asked: list[TopicPartitionReplica],
        ) -> dict[TopicPartitionReplica, int | KafkaError | None]:
            known = set(await self._all_brokers())
            return {
                each: each.broker_id if each.broker_id in known else no_such_broker(each.broker_id)
                for each in asked
            }

        async def ask(
            node: int | None, asked: list[TopicPartitionReplica]
        ) -> dict[TopicPartitionReplica, int | KafkaError]:
            assert node is not None
            partitions = by_topic(TopicPartition(each.topic, each.partition) for each in asked)
            request = ListOffsetsRequest(
                replica_id=_ANY_REPLICA,
                topics=[
                    ListOffsetsTopic(
                        name=name,
                        partitions=[
                            ListOffsetsPartition(partition_index=index, timestamp=int(OffsetSpec.LATEST))
                            for index in indexes
                        ],
                    )
                    for name, indexes in partitions.items()
                ],
            )
            answer = await self._request(node, request)
            return {
                (replica := TopicPartitionReplica(topic.name, each.partition_index, node)): outcome_of(
                    each.error_code, None, replica, each.offset
                )
                for topic in answer.topics
                for each in topic.partitions
            }

        # A replica that does not answer is not asked again: its broker is gone, or does not serve followers.
        return await self._each("listing offsets of replicas", wanted, locate, ask, timeout_ms, retriable=())


def names_of(names: str | Iterable[str], what: str = "topic") -> list[str]:
    """One name or several: a text is an iterable of texts too, but no caller means its letters."""
    if isinstance(names, str):
        return [names]
    # A caller without type checks may have passed anything.
    given: Any = names
    if isinstance(given, bytes) or not isinstance(given, Iterable):
        raise InvalidRequest(f"{given!r} is no name of a {what}: give a text, or a list of texts")
    listed = list(names)
    for each in listed:
        if not isinstance(each, str):
            raise InvalidRequest(f"{each!r} is no name of a {what}: give a text, such as {what}s=['name']")
    return listed


def _is_count(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)


def _offset_spec(given: object, argument: str) -> int:
    """A timestamp, or an OffsetSpec by itself or by its name."""
    return as_number(as_enum(given, argument, OffsetSpec) if isinstance(given, str) else given, argument)


def _placed(given: object, argument: str) -> list[list[int]]:
    return [as_numbers(each, argument) for each in as_items(given, argument, "[[1, 2], [2, 3]]")]


def _configs(given: object, argument: str) -> dict[str, Any]:
    wanted = "{'retention.ms': 1000}"
    return {} if given is None else as_mapped(given, argument, wanted, as_text, lambda value, _: value)


def _new_topics(
    topics: Topics, partitions: int, replication_factor: int, configs: Mapping[str, ConfigValue | None]
) -> Iterable[NewTopic]:
    if isinstance(topics, str | NewTopic):
        topics = [topics]
    # A caller without type checks may have passed anything.
    if isinstance(cast(object, topics), bytes) or not isinstance(cast(object, topics), Iterable):
        raise InvalidRequest(
            f"create_topics() takes names, and not {topics!r}: such as ['orders'] or {{'orders': 3}}"
        )
    counts = dict(topics) if isinstance(topics, Mapping) else {}
    for topic in topics:
        if isinstance(topic, NewTopic):
            wanted = topic
        elif isinstance(cast(object, topic), str):
            wanted = NewTopic(topic, counts.get(topic, partitions), replication_factor, configs=configs)
        else:
            raise InvalidRequest(f"{topic!r} is no name of a topic: give a text or a NewTopic")
        if not _is_count(wanted.partitions) or not _is_count(wanted.replication_factor):
            raise InvalidRequest(
                f"topic {wanted.name!r}: partitions={wanted.partitions!r} and"
                f" replication_factor={wanted.replication_factor!r} must be whole numbers; settings go into configs="
            )
        yield wanted


def _creatable(topic: NewTopic) -> CreatableTopic:
    assignment = as_mapped(
        topic.assignment, f"assignment of topic {topic.name!r}", "{0: [1, 2]}", as_number, as_numbers
    )
    configs = _configs(topic.configs, f"configs of topic {topic.name!r}")
    return CreatableTopic(
        name=topic.name,
        num_partitions=BROKER_DEFAULT if assignment else topic.partitions,
        replication_factor=BROKER_DEFAULT if assignment else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
            for index, brokers in assignment.items()
        ],
        configs=[
            CreatableTopicConfig(name=name, value=config_text(name, value)) for name, value in configs.items()
        ],
    )


def _created(topic: CreatableTopicResult) -> CreatedTopic:
    configs = None
    if topic.configs is not None and topic.topic_config_error_code == NONE:
        configs = {
            each.name: ConfigEntry(
                name=each.name,
                value=each.value,
                source=ConfigSource(max(each.config_source, 0)),
                is_read_only=each.read_only,
                is_sensitive=each.is_sensitive,
            )
            for each in topic.configs
        }
    return CreatedTopic(
        name=topic.name,
        topic_id=topic_id_text(topic.topic_id),
        partitions=none_if_negative(topic.num_partitions),
        replication_factor=none_if_negative(topic.replication_factor),
        configs=configs,
    )


def _described(topic: MetadataResponseTopic) -> TopicDescription | KafkaError:
    if topic.error_code != NONE:
        return error_of(topic.error_code, None, f"topic {topic.name or repr('')}")
    partitions = [
        PartitionDescription(
            partition=each.partition_index,
            leader=none_if_negative(each.leader_id),
            leader_epoch=none_if_negative(each.leader_epoch),
            replicas=tuple(each.replica_nodes),
            isr=tuple(each.isr_nodes),
            offline_replicas=tuple(each.offline_replicas),
        )
        for each in topic.partitions
    ]
    return TopicDescription(
        name=topic.name or "",
        topic_id=topic_id_text(topic.topic_id),
        is_internal=topic.is_internal,
        partitions=tuple(sorted(partitions, key=lambda each: each.partition)),
    )
