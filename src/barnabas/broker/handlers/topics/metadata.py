"""Metadata, versions 0 to 13: the brokers, and the requested topics.

- Null topics (an empty list in version 0) ask for all. From version 12 on a topic may be given by its id. Versions
  10 and 11 have the field, and get INVALID_REQUEST for all topics if they use it.
- A topic that does not exist is UNKNOWN_TOPIC_OR_PARTITION. If client and broker allow it (version 4 on; older clients
  always allow it), it is created in the background, and the client finds it when it asks again.
- A topic that the client may not describe is TOPIC_AUTHORIZATION_FAILED, whether it exists or not, and is left out of
  all topics. Automatic creation needs CREATE on the cluster or the topic.
- Before version 6 a leader without the client's listener is LEADER_NOT_AVAILABLE, later LISTENER_NOT_FOUND.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.handlers.mutation_quota import MutationQuota
from barnabas.broker.handlers.permissions import Permission, cluster_operations, denies, operations
from barnabas.broker.requests.exchange import Answer, AnyExchange, Exchange
from barnabas.broker.requests.operations import NOT_ASKED
from barnabas.broker.waiting.turns import AT_ONCE, STEP
from barnabas.coordination.metadata.image import INTERNAL_TOPICS, MetadataImage, PartitionImage, TopicImage
from barnabas.coordination.metadata.topic_names import is_legal_topic_name
from barnabas.errors import (
    InvalidRequest,
    InvalidTopicException,
    KafkaError,
    LeaderNotAvailable,
    ListenerNotFound,
    ReplicaNotAvailable,
    TopicAuthorizationFailed,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from barnabas.model import BrokerId
from barnabas.protocol.message import ZERO_UUID
from barnabas.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.security.acls import CREATE, DESCRIBE, TOPIC

_FIRST_VERSION_WITH_LISTENER_ERROR: Final = 6
_FIRST_VERSION_WITH_IDS: Final = 12
_VERSIONS_WITH_CLUSTER_OPERATIONS: Final = range(8, 11)


def handle(
    broker: Broker, exchange: Exchange[MetadataResponse], request: MetadataRequest
) -> Answer[MetadataResponse]:
    image = broker.image
    if (
        exchange.version < _FIRST_VERSION_WITH_IDS
        and request.topics is not None
        and any(topic.name is None or topic.topic_id != ZERO_UUID for topic in request.topics)
    ):
        return _refuse(request.topics)
    permission = Permission(broker, exchange, DESCRIBE, is_logged=bool(request.topics))
    denied: Container[str] = ()
    if request.topics and request.allow_auto_topic_creation and broker.config.auto_create_topics_enable:
        missing = [
            topic.name
            for topic in request.topics
            if topic.name is not None
            and topic.topic_id == ZERO_UUID
            and topic.name not in image.topics
            and topic.name in permission
        ]
        if missing:
            denied = _not_creatable(broker, exchange, missing)
            created = [name for name in missing if name not in denied and is_legal_topic_name(name)]
            if created:
                quota = MutationQuota(broker, exchange, strict_since=None)
                broker.automatic_topics.create(created, quota.charge)
    wanted = _wanted(broker, request, exchange.version, permission, denied)
    count = sum(len(each.partitions) + 1 for each in wanted)
    if count > AT_ONCE:
        return exchange.answer_from(_answer_in_turns(broker, exchange, request, image, wanted))
    topics = [
        _topic(
            broker, exchange, found, request, _partitions(image, found, 0, len(found.partitions), exchange)
        )
        if isinstance(found, TopicImage)
        else found
        for found in wanted
    ]
    return _response(broker, image, exchange, request, topics)


HANDLER: Final = Handler(MetadataRequest, MetadataResponse, handle)


def _refuse(topics: list[MetadataRequestTopic]) -> MetadataResponse:
    return MetadataResponse(
        error_code=InvalidRequest.code,
        topics=[
            MetadataResponseTopic(
                error_code=InvalidRequest.code, name=topic.name or "", topic_id=topic.topic_id
            )
            for topic in topics
        ],
    )


def _not_creatable(broker: Broker, exchange: AnyExchange, names: Iterable[str]) -> Container[str]:
    if not denies(broker, exchange, CREATE, is_logged=False):
        return ()
    permission = Permission(broker, exchange, CREATE)
    return {name for name in names if name not in permission}


async def _answer_in_turns(
    broker: Broker,
    exchange: AnyExchange,
    request: MetadataRequest,
    image: MetadataImage,
    wanted: list[TopicImage | MetadataResponseTopic],
) -> MetadataResponse:
    """For thousands of partitions. All of them come from one image."""
    turns = broker.turns
    end_ns = turns.end_ns()
    topics: list[MetadataResponseTopic] = []
    for found in wanted:
        if not isinstance(found, TopicImage):
            topics.append(found)
            continue
        partitions: list[MetadataResponsePartition] = []
        for start in range(0, len(found.partitions), STEP):
            partitions += _partitions(image, found, start, start + STEP, exchange)
            if turns.is_over(end_ns):
                await turns.next()
                end_ns = turns.end_ns()
        topics.append(_topic(broker, exchange, found, request, partitions))
    await turns.next()
    return _response(broker, image, exchange, request, topics)


def _response(
    broker: Broker,
    image: MetadataImage,
    exchange: AnyExchange,
    request: MetadataRequest,
    topics: list[MetadataResponseTopic],
) -> MetadataResponse:
    listener = exchange.session.listener
    brokers = [
        MetadataResponseBroker(node_id=node.id, host=endpoint.host, port=endpoint.port, rack=node.rack)
        for node in image.brokers.values()
        if (endpoint := node.endpoint(listener)) is not None
    ]
    asks_cluster = (
        request.include_cluster_authorized_operations
        and exchange.version in _VERSIONS_WITH_CLUSTER_OPERATIONS
    )
    return MetadataResponse(
        brokers=brokers,
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        topics=topics,
        cluster_authorized_operations=cluster_operations(broker, exchange) if asks_cluster else NOT_ASKED,
    )


def _wanted(
    broker: Broker, request: MetadataRequest, version: int, permission: Permission, denied: Container[str]
) -> list[TopicImage | MetadataResponseTopic]:
    image, under_way = broker.image, broker.automatic_topics.under_way
    if request.topics is None or (version == 0 and not request.topics):
        if broker.authorization is None:
            return list(image.topics.values())
        return [topic for topic in image.topics.values() if topic.name in permission]
    wanted: list[TopicImage | MetadataResponseTopic] = []
    seen: set[str | bytes] = set()
    for asked in request.topics:
        key = asked.topic_id if asked.topic_id != ZERO_UUID else asked.name or ""
        if key in seen:
            continue
        seen.add(key)
        if asked.topic_id != ZERO_UUID:
            by_id = image.topic_by_id(asked.topic_id)
            if by_id is not None and by_id.name in permission:
                wanted.append(by_id)
            else:
                code = UnknownTopicId.code if by_id is None else TopicAuthorizationFailed.code
                wanted.append(MetadataResponseTopic(error_code=code, name=None, topic_id=asked.topic_id))
            continue
        name = asked.name or ""
        if name not in permission or name in denied:
            # Whether such a topic exists is not said.
            is_internal = name in denied and name in INTERNAL_TOPICS
            code = TopicAuthorizationFailed.code
            wanted.append(MetadataResponseTopic(error_code=code, name=name, is_internal=is_internal))
            continue
        topic = image.topics.get(name)
        if topic is not None and name not in under_way:
            wanted.append(topic)
            continue
        is_legal = topic is not None or is_legal_topic_name(name)
        error: type[KafkaError] = UnknownTopicOrPartition if is_legal else InvalidTopicException
        wanted.append(
            MetadataResponseTopic(error_code=error.code, name=name, is_internal=name in INTERNAL_TOPICS)
        )
    return wanted


def _topic(
    broker: Broker,
    exchange: AnyExchange,
    topic: TopicImage,
    request: MetadataRequest,
    partitions: list[MetadataResponsePartition],
) -> MetadataResponseTopic:
    asks_operations = request.include_topic_authorized_operations
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=partitions,
        topic_authorized_operations=operations(broker, exchange, TOPIC, topic.name)
        if asks_operations
        else NOT_ASKED,
    )


def _partitions(
    image: MetadataImage, topic: TopicImage, start: int, end: int, exchange: AnyExchange
) -> list[MetadataResponsePartition]:
    return [
        _partition(image, index, partition, exchange.session.listener, exchange.version)
        for index, partition in enumerate(topic.partitions[start:end], start)
    ]


def _partition(
    image: MetadataImage, index: int, partition: PartitionImage, listener: str, version: int
) -> MetadataResponsePartition:
    replicas, isr = list(partition.replicas), list(partition.isr)
    if version == 0:
        replicas = [replica for replica in replicas if is_reachable(image, replica, listener)]
        isr = [replica for replica in isr if is_reachable(image, replica, listener)]
    error_code, leader = leader_for_clients(
        image, partition, listener, tells_listener_error=version >= _FIRST_VERSION_WITH_LISTENER_ERROR
    )
    if error_code == 0 and (len(replicas) < len(partition.replicas) or len(isr) < len(partition.isr)):
        error_code = ReplicaNotAvailable.code
    return MetadataResponsePartition(
        error_code=error_code,
        partition_index=index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(replicas),
        isr_nodes=list(isr),
        offline_replicas=offline_replicas(image, partition),
    )


def offline_replicas(image: MetadataImage, partition: PartitionImage) -> list[int]:
    """Those on brokers that are not alive, and those in failed log directories."""
    failed = partition.failed_replicas
    return [each for each in partition.replicas if each not in image.brokers or each in failed]


def is_reachable(image: MetadataImage, broker_id: BrokerId, listener: str) -> bool:
    node = image.brokers.get(broker_id)
    return node is not None and node.endpoint(listener) is not None


def leader_for_clients(
    image: MetadataImage, partition: PartitionImage, listener: str, *, tells_listener_error: bool = True
) -> tuple[int, int]:
    """An error code and the leader's id, -1 if clients of the listener cannot reach one."""
    node = image.brokers.get(partition.leader)
    if node is None:
        return LeaderNotAvailable.code, -1
    if node.endpoint(listener) is None:
        return (ListenerNotFound.code if tells_listener_error else LeaderNotAvailable.code), -1
    return 0, partition.leader
