"""Who asks a coordinator of groups, as its machine knows callers."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.broker.requests.exchange import Exchange
from barnabas.groups.decision import Caller
from barnabas.protocol.message import Message


def caller_of(exchange: Exchange, ticket: Callable[[Message], None] | None = None) -> Caller:
    """Whoever sent the request, answered by its exchange unless something is to be done with the answer first."""
    return Caller(
        version=exchange.version,
        client_id=exchange.client_id,
        client_host=f"/{exchange.session.host}",
        ticket=exchange.respond if ticket is None else ticket,
    )
