"""DescribeProducers, version 0: the producers with an id that have written to partitions, and their transactions.

It shows hanging transactions: the first offset of an open transaction, and the time of its producer's last record.
Every replica answers, about its own log.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.handlers.permissions import Permission
from barnabas.broker.requests.exchange import Answer, Exchange
from barnabas.coordination.metadata.topic_names import check_topic_name
from barnabas.errors import KafkaError, UnknownTopicOrPartition
from barnabas.protocol.messages.describe_producers_request import DescribeProducersRequest
from barnabas.protocol.messages.describe_producers_response import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from barnabas.security.acls import READ


def handle(
    broker: Broker, exchange: Exchange[DescribeProducersResponse], request: DescribeProducersRequest
) -> Answer[DescribeProducersResponse]:
    # A partition that is named twice is described once, so that a small request has no large response.
    wanted: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    permission = Permission(broker, exchange, READ)
    response = DescribeProducersResponse(topics=[TopicResponse(name=name) for name in wanted])
    return exchange.answer_in_turns(
        broker.turns,
        [(answers, index) for answers in response.topics for index in wanted[answers.name]],
        lambda each: each[0].partitions.append(_describe(broker, permission, each[0].name, each[1])),
        lambda _: response,
    )


HANDLER: Final = Handler(DescribeProducersRequest, DescribeProducersResponse, handle)


def _describe(broker: Broker, permission: Permission, topic: str, index: int) -> PartitionResponse:
    answer = PartitionResponse(partition_index=index)
    try:
        check_topic_name(topic)
        permission.check(topic)
        if topic not in broker.image.topics:
            raise UnknownTopicOrPartition(f"there is no topic {topic!r}")
        partition = broker.replicas.partition(topic, index)
        # Without a log there is an error, whichever it is.
        log = partition.log if partition.log is not None else partition.leader_log()
        producers = log.active_producers()
    except KafkaError as error:
        answer.error_code = error.code
        answer.error_message = str(error)
        return answer
    answer.active_producers = [
        ProducerState(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            last_sequence=producer.last_sequence,
            last_timestamp=producer.last_timestamp,
            coordinator_epoch=producer.coordinator_epoch,
            current_txn_start_offset=producer.current_txn_start_offset,
        )
        for producer in producers
    ]
    return answer
