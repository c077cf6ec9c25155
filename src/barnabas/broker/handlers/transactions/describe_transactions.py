"""DescribeTransactions, version 0: the state of transactions, by their transactional ids."""

from __future__ import annotations

from barnabas.broker.broker import Broker
from barnabas.broker.requests.exchange import Exchange
from barnabas.errors import KafkaError
from barnabas.protocol.messages.describe_transactions_request import DescribeTransactionsRequest
from barnabas.protocol.messages.describe_transactions_response import (
    DescribeTransactionsResponse,
    TransactionState,
)
from barnabas.transactions.listing import describe_transaction


def handle(broker: Broker, exchange: Exchange, request: DescribeTransactionsRequest) -> object:
    return broker.turns.map(
        request.transactional_ids,
        lambda transactional_id: _describe(broker, transactional_id),
        lambda states: DescribeTransactionsResponse(transaction_states=states),
    )


def _describe(broker: Broker, transactional_id: str) -> TransactionState:
    try:
        coordinator = broker.transactions.shell_of_named(transactional_id).coordinator
    except KafkaError as error:
        return TransactionState(transactional_id=transactional_id, error_code=error.code)
    return describe_transaction(coordinator, transactional_id)
