"""Who asks a coordinator of groups, as its machine knows callers."""

from __future__ import annotations

from barnabas.broker.exchange import Exchange
from barnabas.groups.decision import Caller


def caller_of(exchange: Exchange) -> Caller:
    """Whoever sent the request, answered by its exchange."""
    return Caller(
        version=exchange.version,
        client_id=exchange.client_id,
        client_host=f"/{exchange.session.host}",
        ticket=exchange.respond,
    )
