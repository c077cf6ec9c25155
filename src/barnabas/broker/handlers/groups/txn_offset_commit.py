"""TxnOffsetCommit, versions 0 to 5: offsets of a group that take effect when a transaction is committed.

- From version 3 on the request names the member, and a member of another generation is refused.
- From version 4 on the client knows TRANSACTION_ABORTABLE. From version 5 on this request adds the group's partition of
  `__consumer_offsets` to the transaction, not AddOffsetsToTxn.
- Unknown partitions are refused one by one, before the coordinator is asked.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.coordinators.group_runtime import OFFSETS_TOPIC
from barnabas.broker.handlers.groups.asking import caller_of
from barnabas.broker.handlers.groups.known_partitions import add_refused, take_known, take_permitted
from barnabas.broker.handlers.groups.wide_txn_commit import Then, commit_in_pieces, is_wide
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.handlers.permissions import Permission, authorize
from barnabas.broker.handlers.transaction_verification import (
    Dialect,
    Producer,
    Verified,
    check_producer,
    verify,
)
from barnabas.broker.requests.exchange import Answer, Exchange
from barnabas.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidGroupId,
    KafkaError,
    UnknownTopicOrPartition,
)
from barnabas.groups.offsets import txn_commit_error
from barnabas.model import NO_SEQUENCE, TopicPartition
from barnabas.primitives.decision import error_of_failed_append
from barnabas.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
)
from barnabas.protocol.messages.txn_offset_commit_response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from barnabas.security.acls import GROUP, READ, TRANSACTIONAL_ID, WRITE

_FIRST_WITH_LOADING: Final = 2
_FIRST_WITH_ABORTABLE: Final = 4
_FIRST_THAT_ADDS: Final = 5


def handle(
    broker: Broker, exchange: Exchange[TxnOffsetCommitResponse], request: TxnOffsetCommitRequest
) -> Answer[TxnOffsetCommitResponse]:
    try:
        authorize(broker, exchange, WRITE, TRANSACTIONAL_ID, request.transactional_id)
        authorize(broker, exchange, READ, GROUP, request.group_id)
    except KafkaError as error:
        return txn_commit_error(request, error.code)
    permitted, denied = take_permitted(Permission(broker, exchange, READ), request.topics, _refusal)
    known, refused = take_known(broker.image, permitted, _refuse)
    refused += denied
    request.topics = [topic for topic in known if topic.partitions]
    if not request.topics:
        return _merged(exchange.version, refused, TxnOffsetCommitResponse())
    try:
        if not request.group_id:
            raise InvalidGroupId("offsets are committed for a group with a name")
        check_producer(request.producer_id, request.producer_epoch)
        index = broker.groups.partition_of(request.group_id)
        broker.groups.shell_at(index)
    except KafkaError as error:
        return _merged(exchange.version, refused, txn_commit_error(request, error.code))
    where = TopicPartition(OFFSETS_TOPIC, index)
    if is_wide(request):
        return exchange.answer_from(_commit_wide(broker, exchange, request, refused, where))
    parked = exchange.park()
    _commit(
        broker,
        exchange,
        where,
        request,
        lambda response: parked.answer_with(lambda: _merged(exchange.version, refused, response)),
    )
    return parked


HANDLER: Final = Handler(TxnOffsetCommitRequest, TxnOffsetCommitResponse, handle)


def _dialect(version: int) -> Dialect:
    if version >= _FIRST_THAT_ADDS:
        return Dialect.ADDS_PARTITIONS
    return Dialect.ABORTABLE if version >= _FIRST_WITH_ABORTABLE else Dialect.OLD


async def _commit_wide(
    broker: Broker,
    exchange: Exchange[TxnOffsetCommitResponse],
    request: TxnOffsetCommitRequest,
    refused: list[TxnOffsetCommitResponseTopic],
    where: TopicPartition,
) -> TxnOffsetCommitResponse:
    response = await commit_in_pieces(broker, request, partial(_commit, broker, exchange, where))
    return _merged(exchange.version, refused, response)


def _commit(
    broker: Broker,
    exchange: Exchange[TxnOffsetCommitResponse],
    where: TopicPartition,
    request: TxnOffsetCommitRequest,
    then: Then,
) -> None:
    """Verifies that the group's partition is part of the transaction, and commits. `then` gets the response."""

    def verified(verified: Verified) -> None:
        try:
            guard = verified.guard(where)
            shell = broker.groups.shell_at(where.partition)
        except KafkaError as error:
            then(txn_commit_error(request, error_of_failed_append(error).code))
            return
        shell.carry_out(
            shell.coordinator.offsets.commit_in_transaction(
                caller_of(exchange, then), request, broker.now_ms, verification_guard=guard
            )
        )

    producer = Producer(request.transactional_id, request.producer_id, request.producer_epoch)
    verify(broker, producer, {where: NO_SEQUENCE}, _dialect(exchange.version), verified)


def _refuse(topic: TxnOffsetCommitRequestTopic, unknown: list[int]) -> TxnOffsetCommitResponseTopic:
    return _refusal(topic, unknown, UnknownTopicOrPartition.code)


def _refusal(
    topic: TxnOffsetCommitRequestTopic, indexes: list[int], code: int
) -> TxnOffsetCommitResponseTopic:
    return TxnOffsetCommitResponseTopic(
        name=topic.name,
        partitions=[
            TxnOffsetCommitResponsePartition(partition_index=index, error_code=code) for index in indexes
        ],
    )


def _merged(
    version: int, refused: list[TxnOffsetCommitResponseTopic], response: TxnOffsetCommitResponse
) -> TxnOffsetCommitResponse:
    if version < _FIRST_WITH_LOADING:
        # Producers before 2.0 may fail for good on the other error.
        for topic in response.topics:
            for partition in topic.partitions:
                if partition.error_code == CoordinatorLoadInProgress.code:
                    partition.error_code = CoordinatorNotAvailable.code
    add_refused(response.topics, refused)
    return response
