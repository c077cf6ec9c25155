"""DescribeQuorum, versions 0 to 2: which nodes keep the metadata of the cluster.

There is no KRaft quorum. The controller keeps the metadata in its store, so the response describes it as a quorum of
one voter, which leads since its epoch. The other brokers are observers. Offsets count the changes that the
controller has published, from the store's transaction that registered it: they rise, and no observer lags. Only
partition 0 of `__cluster_metadata` exists. Version 1 has timestamps, version 2 messages and the voters' listeners.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.requests.exchange import AnyExchange
from barnabas.errors import NotLeaderOrFollower, UnknownTopicOrPartition
from barnabas.log.names import METADATA_TOPIC
from barnabas.protocol.messages.describe_quorum_request import DescribeQuorumRequest
from barnabas.protocol.messages.describe_quorum_response import (
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)

_METADATA_PARTITION: Final = 0
_FIRST_VERSION_WITH_TIMES: Final = 1
_FIRST_VERSION_WITH_NODES: Final = 2


def handle(broker: Broker, exchange: AnyExchange, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    has_nodes = exchange.version >= _FIRST_VERSION_WITH_NODES
    topics = [
        TopicData(
            topic_name=topic.topic_name,
            partitions=[
                _quorum(broker, exchange.version)
                if (topic.topic_name, each.partition_index) == (METADATA_TOPIC, _METADATA_PARTITION)
                else PartitionData(
                    partition_index=each.partition_index,
                    error_code=UnknownTopicOrPartition.code,
                    error_message="This server does not host this topic-partition." if has_nodes else "",
                )
                for each in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    is_found = any(each.error_code == 0 for topic in topics for each in topic.partitions)
    return DescribeQuorumResponse(topics=topics, nodes=_voters(broker) if has_nodes and is_found else [])


HANDLER: Final = Handler(DescribeQuorumRequest, DescribeQuorumResponse, handle)


def _quorum(broker: Broker, version: int) -> PartitionData:
    image = broker.image
    controller = image.brokers.get(image.controller_id)
    if controller is None:
        # As from a KRaft node without a leader: the client asks again.
        return PartitionData(
            partition_index=_METADATA_PARTITION,
            error_code=NotLeaderOrFollower.code,
            error_message="There is no controller now." if version >= _FIRST_VERSION_WITH_NODES else "",
        )
    end_offset = controller.epoch + broker.metadata.published
    fetched_ms = broker.now_ms if version >= _FIRST_VERSION_WITH_TIMES else -1

    def state(broker_id: int) -> ReplicaState:
        return ReplicaState(
            replica_id=broker_id,
            log_end_offset=end_offset,
            last_fetch_timestamp=fetched_ms,
            last_caught_up_timestamp=fetched_ms,
        )

    return PartitionData(
        partition_index=_METADATA_PARTITION,
        leader_id=controller.id,
        leader_epoch=image.controller_epoch,
        high_watermark=end_offset,
        current_voters=[state(controller.id)],
        observers=[state(each) for each in image.brokers if each != controller.id],
    )


def _voters(broker: Broker) -> list[Node]:
    image = broker.image
    endpoints = image.brokers[image.controller_id].endpoints
    return [
        Node(
            node_id=image.controller_id,
            listeners=[
                Listener(name=each.listener_name, host=each.host, port=each.port) for each in endpoints
            ],
        )
    ]
