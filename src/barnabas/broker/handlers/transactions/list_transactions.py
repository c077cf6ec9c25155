"""ListTransactions, versions 0 to 2: the transactions that this broker coordinates.

A client may ask for certain states and producers, from version 1 on for transactions that have been open for a while,
from version 2 on for transactional ids that match a pattern as a whole. The response names unknown states. While a
partition is being loaded the list would be incomplete, and the client has to ask again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.handlers.permissions import Permission
from barnabas.broker.requests.exchange import AnyExchange
from barnabas.errors import CoordinatorLoadInProgress, InvalidRegularExpression
from barnabas.protocol.messages.list_transactions_request import ListTransactionsRequest
from barnabas.protocol.messages.list_transactions_response import ListTransactionsResponse
from barnabas.security.acls import DESCRIBE, TRANSACTIONAL_ID
from barnabas.transactions.listing import TransactionFilter, list_transactions


def handle(
    broker: Broker, exchange: AnyExchange, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    if any(shell.is_loading for shell in broker.transactions):
        return ListTransactionsResponse(error_code=CoordinatorLoadInProgress.code)
    try:
        wanted = TransactionFilter(
            states=frozenset(request.state_filters),
            producer_ids=frozenset(request.producer_id_filters),
            duration_ms=request.duration_filter,
            matches=_matcher(request.transactional_id_pattern),
        )
    except InvalidRegularExpression as error:
        return ListTransactionsResponse(error_code=error.code)
    permission = Permission(broker, exchange, DESCRIBE, TRANSACTIONAL_ID)
    active = [shell.coordinator for shell in broker.transactions if shell.is_active]
    return ListTransactionsResponse(
        unknown_state_filters=wanted.unknown_states,
        transaction_states=[
            each
            for each in list_transactions(active, wanted, broker.now_ms)
            if each.transactional_id in permission
        ],
    )


HANDLER: Final = Handler(ListTransactionsRequest, ListTransactionsResponse, handle)


def _matcher(pattern: str | None) -> Callable[[str], object] | None:
    """Patterns are RE2's, which match in linear time. The library is loaded with the first pattern."""
    if not pattern:
        return None
    import re2

    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        raise InvalidRegularExpression(f"{pattern!r} is no regular expression: {error}") from error
    matcher: Callable[[str], object] = compiled.fullmatch
    return matcher
