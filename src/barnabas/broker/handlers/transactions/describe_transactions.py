"""DescribeTransactions, version 0: the state of transactions, by their transactional ids."""

from __future__ import annotations

from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.requests.exchange import Answer, Exchange
from barnabas.errors import KafkaError
from barnabas.protocol.messages.describe_transactions_request import DescribeTransactionsRequest
from barnabas.protocol.messages.describe_transactions_response import (
    DescribeTransactionsResponse,
    TransactionState,
)
from barnabas.transactions.listing import describe_transaction


def handle(
    broker: Broker, exchange: Exchange[DescribeTransactionsResponse], request: DescribeTransactionsRequest
) -> Answer[DescribeTransactionsResponse]:
    return exchange.answer_in_turns(
        broker.turns,
        request.transactional_ids,
        lambda transactional_id: _describe(broker, transactional_id),
        lambda states: DescribeTransactionsResponse(transaction_states=states),
    )


HANDLER: Final = Handler(DescribeTransactionsRequest, DescribeTransactionsResponse, handle)


def _describe(broker: Broker, transactional_id: str) -> TransactionState:
    try:
        coordinator = broker.transactions.shell_of_named(transactional_id).coordinator
    except KafkaError as error:
        return TransactionState(transactional_id=transactional_id, error_code=error.code)
    return describe_transaction(coordinator, transactional_id)
