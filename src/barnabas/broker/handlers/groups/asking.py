"""Requests of handlers to the coordinator of a group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from barnabas.broker.coordinators.group_shell import GroupShell
from barnabas.broker.requests.exchange import AnyExchange, Exchange, Parked, ResponseT
from barnabas.groups.caller import Caller
from barnabas.primitives.decision import Decision

RequestT = TypeVar("RequestT")


def ask(
    exchange: Exchange[ResponseT],
    shell: GroupShell,
    decide: Callable[[Caller, RequestT, int], Decision],
    request: RequestT,
    now_ms: int,
) -> Parked[ResponseT]:
    """Parks a request until the coordinator answers it. `decide` is a method of the coordinator's machine."""
    parked = exchange.park()
    shell.carry_out(decide(caller_of(exchange, parked.answer), request, now_ms))
    return parked


def caller_of(exchange: AnyExchange, answer: Callable[[Any], None]) -> Caller:
    """The sender of a request, as the machine knows callers."""
    return Caller(
        version=exchange.version,
        client_id=exchange.client_id,
        client_host=f"/{exchange.session.host}",
        answer=answer,
    )
