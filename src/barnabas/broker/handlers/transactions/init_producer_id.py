"""InitProducerId, versions 0 to 5: an id and an epoch for a producer.

- Without a transactional id the producer is idempotent and gets an unused id.
- With a transactional id it fences the producer that had it. An open transaction is aborted first: until then the error
  is CONCURRENT_TRANSACTIONS, and the producer tries again.
- From version 3 on a producer sends its id and epoch, and gets the next epoch if no other producer came in between.
- Before version 4 the error INVALID_PRODUCER_EPOCH stands for PRODUCER_FENCED.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.coordinators.transaction_errors import code_for
from barnabas.broker.handlers.handler import coroutine_handler
from barnabas.broker.handlers.permissions import authorize, denies
from barnabas.broker.requests.authorization import refusal
from barnabas.broker.requests.exchange import Answer, AnyExchange, Exchange, Parked
from barnabas.errors import InvalidRequest, InvalidTransactionTimeout, KafkaError
from barnabas.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerEpoch, ProducerId
from barnabas.protocol.messages.init_producer_id_request import InitProducerIdRequest
from barnabas.protocol.messages.init_producer_id_response import InitProducerIdResponse
from barnabas.security.acls import CLUSTER, IDEMPOTENT_WRITE, TOPIC, TRANSACTIONAL_ID, WRITE
from barnabas.transactions.answers import ProducerAnswer
from barnabas.transactions.producer import ProducerIdAndEpoch
from barnabas.transactions.transaction import FIRST_PRODUCER_EPOCH

_FIRST_WITH_FENCED: Final = 4


async def handle(
    broker: Broker, exchange: Exchange[InitProducerIdResponse], request: InitProducerIdRequest
) -> Answer[InitProducerIdResponse]:
    try:
        _authorize(broker, exchange, request.transactional_id)
        expected = _expected(request)
        if request.transactional_id is None:
            await broker.transactions.wait_for_producer_ids()
            producer_id = await broker.producer_ids.next()
            return InitProducerIdResponse(producer_id=producer_id, producer_epoch=FIRST_PRODUCER_EPOCH)
        if not request.transactional_id:
            raise InvalidRequest("a transactional id is not empty")
        max_timeout_ms = broker.transactions.settings.transaction_max_timeout_ms
        if not 0 < request.transaction_timeout_ms <= max_timeout_ms:
            raise InvalidTransactionTimeout(f"transactions may last 1 to {max_timeout_ms} ms")
        await broker.producer_ids.ensure()
        shell = broker.transactions.shell_of(request.transactional_id)
    except KafkaError as error:
        return _response(exchange.version, ProducerAnswer(error=error))
    parked = exchange.park()
    shell.carry_out(
        shell.coordinator.init_producer_id(
            request.transactional_id,
            request.transaction_timeout_ms,
            expected,
            partial(_answer_with, parked, exchange.version),
            broker.now_ms,
        )
    )
    return parked


HANDLER: Final = coroutine_handler(InitProducerIdRequest, InitProducerIdResponse, handle)


def _authorize(broker: Broker, exchange: AnyExchange, transactional_id: str | None) -> None:
    """An idempotent producer needs a permission of its own, or one to write to some topic."""
    authorization = broker.authorization
    if authorization is None:
        return
    if transactional_id is not None:
        authorize(broker, exchange, WRITE, TRANSACTIONAL_ID, transactional_id)
    elif denies(broker, exchange, IDEMPOTENT_WRITE, is_logged=False) and not authorization.allows_some(
        exchange, WRITE, TOPIC
    ):
        raise refusal(CLUSTER)


def _expected(request: InitProducerIdRequest) -> ProducerIdAndEpoch | None:
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        raise InvalidRequest("a producer has both an id and an epoch, or neither")
    if request.producer_id == NO_PRODUCER_ID:
        return None
    return ProducerIdAndEpoch(ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch))


def _answer_with(parked: Parked[InitProducerIdResponse], version: int, answer: ProducerAnswer) -> None:
    parked.answer(_response(version, answer))


def _response(version: int, answer: ProducerAnswer) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=code_for(answer.error, knows_fenced=version >= _FIRST_WITH_FENCED),
        producer_id=answer.producer_id,
        producer_epoch=answer.producer_epoch,
    )
