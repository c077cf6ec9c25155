"""WriteTxnMarkers, versions 0 to 2: the transaction coordinator ends transactions on partitions that this broker leads.

An administrator uses it as well, to abort a hanging transaction. From version 2 on a marker has the version of its
transaction.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.handlers.permissions import denies
from barnabas.broker.handlers.results import code_of
from barnabas.broker.handlers.transaction_verification import check_producer
from barnabas.broker.requests.exchange import Answer, Exchange, Parked
from barnabas.errors import ClusterAuthorizationFailed, KafkaError
from barnabas.model import TopicPartition
from barnabas.protocol.messages.write_txn_markers_request import WriteTxnMarkersRequest
from barnabas.protocol.messages.write_txn_markers_response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from barnabas.security.acls import ALTER, CLUSTER_ACTION


class _Answers:
    """Gathers the results of the markers, and answers after the last."""

    def __init__(self, parked: Parked[WriteTxnMarkersResponse], expected: int) -> None:
        self._parked = parked
        self._expected = expected
        self._by_producer: dict[int, dict[TopicPartition, KafkaError | None]] = {}

    def add(self, producer_id: int, results: dict[TopicPartition, KafkaError | None]) -> None:
        self._by_producer.setdefault(producer_id, {}).update(results)
        self._expected -= 1
        if self._expected == 0:
            self._parked.answer(
                WriteTxnMarkersResponse(
                    markers=[_result(*producer) for producer in self._by_producer.items()]
                )
            )


def handle(
    broker: Broker, exchange: Exchange[WriteTxnMarkersResponse], request: WriteTxnMarkersRequest
) -> Answer[WriteTxnMarkersResponse]:
    if denies(broker, exchange, ALTER, is_logged=False) and denies(broker, exchange, CLUSTER_ACTION):
        return _refused(request, ClusterAuthorizationFailed.code)
    if not request.markers:
        return WriteTxnMarkersResponse()
    parked = exchange.park()
    answers = _Answers(parked, len(request.markers))
    for marker in request.markers:
        partitions = dict.fromkeys(
            TopicPartition(topic.name, index) for topic in marker.topics for index in topic.partition_indexes
        )
        try:
            check_producer(marker.producer_id, marker.producer_epoch)
        except KafkaError as error:
            answers.add(marker.producer_id, dict.fromkeys(partitions, error))
            continue
        broker.markers.write_markers(
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            marker.transaction_result,
            partitions,
            partial(answers.add, marker.producer_id),
            transaction_version=marker.transaction_version,
        )
    return parked


HANDLER: Final = Handler(WriteTxnMarkersRequest, WriteTxnMarkersResponse, handle)


def _refused(request: WriteTxnMarkersRequest, code: int) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


def _result(producer_id: int, results: dict[TopicPartition, KafkaError | None]) -> WritableTxnMarkerResult:
    topics: dict[str, WritableTxnMarkerTopicResult] = {}
    for key, error in results.items():
        topic = topics.setdefault(key.topic, WritableTxnMarkerTopicResult(name=key.topic))
        topic.partitions.append(
            WritableTxnMarkerPartitionResult(partition_index=key.partition, error_code=code_of(error))
        )
    return WritableTxnMarkerResult(producer_id=producer_id, topics=list(topics.values()))
