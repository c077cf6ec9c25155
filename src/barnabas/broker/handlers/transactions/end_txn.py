"""EndTxn, versions 0 to 5: a producer commits or aborts its transaction.

- The response is sent when the end is decided and cannot be undone; its markers are written after that.
- Before version 2 the error INVALID_PRODUCER_EPOCH stands for PRODUCER_FENCED.
- From version 5 on (transaction version 2, KIP-890) the producer gets a new epoch with each end, and sometimes a new
  id. It may repeat a request whose response was lost.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.coordinators.transaction_errors import code_for
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.handlers.permissions import authorize
from barnabas.broker.requests.exchange import Answer, Exchange, Parked
from barnabas.errors import KafkaError
from barnabas.model import ProducerEpoch, ProducerId
from barnabas.protocol.messages.end_txn_request import EndTxnRequest
from barnabas.protocol.messages.end_txn_response import EndTxnResponse
from barnabas.security.acls import TRANSACTIONAL_ID, WRITE
from barnabas.transactions.answers import ProducerAnswer
from barnabas.transactions.producer import TRANSACTION_VERSION_0, TRANSACTION_VERSION_2, ProducerIdAndEpoch

_FIRST_WITH_FENCED: Final = 2
_FIRST_WITH_EPOCHS: Final = 5


def handle(
    broker: Broker, exchange: Exchange[EndTxnResponse], request: EndTxnRequest
) -> Answer[EndTxnResponse]:
    has_epochs = exchange.version >= _FIRST_WITH_EPOCHS
    try:
        authorize(broker, exchange, WRITE, TRANSACTIONAL_ID, request.transactional_id)
        shell = broker.transactions.shell_of_named(request.transactional_id)
    except KafkaError as error:
        return _response(exchange.version, ProducerAnswer(error=error))
    parked = exchange.park()
    shell.carry_out(
        shell.coordinator.end_transaction(
            request.transactional_id,
            ProducerIdAndEpoch(ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch)),
            request.committed,
            TRANSACTION_VERSION_2 if has_epochs else TRANSACTION_VERSION_0,
            partial(_answer_with, parked, exchange.version),
            broker.now_ms,
        )
    )
    return parked


HANDLER: Final = Handler(EndTxnRequest, EndTxnResponse, handle)


def _answer_with(parked: Parked[EndTxnResponse], version: int, answer: ProducerAnswer) -> None:
    parked.answer(_response(version, answer))


def _response(version: int, answer: ProducerAnswer) -> EndTxnResponse:
    response = EndTxnResponse(error_code=code_for(answer.error, knows_fenced=version >= _FIRST_WITH_FENCED))
    if version >= _FIRST_WITH_EPOCHS:
        response.producer_id = answer.producer_id
        response.producer_epoch = answer.producer_epoch
    return response
