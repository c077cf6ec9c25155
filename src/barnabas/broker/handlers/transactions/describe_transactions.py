"""DescribeTransactions, version 0: the state of transactions, by their transactional ids."""

from __future__ import annotations

from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.handlers.permissions import Permission, authorize
from barnabas.broker.requests.exchange import Answer, AnyExchange, Exchange
from barnabas.errors import KafkaError
from barnabas.protocol.messages.describe_transactions_request import DescribeTransactionsRequest
from barnabas.protocol.messages.describe_transactions_response import (
    DescribeTransactionsResponse,
    TransactionState,
)
from barnabas.security.acls import DESCRIBE, TRANSACTIONAL_ID
from barnabas.transactions.listing import describe_transaction


def handle(
    broker: Broker, exchange: Exchange[DescribeTransactionsResponse], request: DescribeTransactionsRequest
) -> Answer[DescribeTransactionsResponse]:
    return exchange.answer_in_turns(
        broker.turns,
        request.transactional_ids,
        lambda transactional_id: _describe(broker, exchange, transactional_id),
        lambda states: DescribeTransactionsResponse(transaction_states=states),
    )


HANDLER: Final = Handler(DescribeTransactionsRequest, DescribeTransactionsResponse, handle)


def _describe(broker: Broker, exchange: AnyExchange, transactional_id: str) -> TransactionState:
    try:
        authorize(broker, exchange, DESCRIBE, TRANSACTIONAL_ID, transactional_id)
        coordinator = broker.transactions.shell_of_named(transactional_id).coordinator
    except KafkaError as error:
        return TransactionState(transactional_id=transactional_id, error_code=error.code)
    state = describe_transaction(coordinator, transactional_id)
    permission = Permission(broker, exchange, DESCRIBE)
    state.topics = [topic for topic in state.topics if topic.topic in permission]
    return state
