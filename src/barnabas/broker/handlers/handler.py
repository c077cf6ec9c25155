"""The declaration of each API's module: `HANDLER`, with its request, its response and the function between them.

The types belong together: mypy rejects a function with another request or response, and a function that can end
without an answer. A declaration that every API needs is a required argument here, so no API can be added without it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from barnabas.broker.broker import Broker
from barnabas.broker.requests.exchange import Answer, Exchange
from barnabas.protocol.message import Message

RequestT = TypeVar("RequestT", bound=Message)
ResponseT = TypeVar("ResponseT", bound=Message)


class Handler(Generic[RequestT, ResponseT]):
    __slots__ = ("handle", "request_class", "response_class")

    def __init__(
        self,
        request_class: type[RequestT],
        response_class: type[ResponseT],
        handle: Callable[[Broker, Exchange[ResponseT], RequestT], Answer[ResponseT]],
    ) -> None:
        self.request_class = request_class
        self.response_class = response_class
        self.handle = handle


def coroutine_handler(
    request_class: type[RequestT],
    response_class: type[ResponseT],
    handle: Callable[[Broker, Exchange[ResponseT], RequestT], Coroutine[Any, Any, Answer[ResponseT]]],
) -> Handler[RequestT, ResponseT]:
    """For an API whose requests always wait for something, a change of the cluster for example."""

    def answer(broker: Broker, exchange: Exchange[ResponseT], request: RequestT) -> Answer[ResponseT]:
        return exchange.answer_from(handle(broker, exchange, request))

    return Handler(request_class, response_class, answer)


def load_handler(module: str) -> Handler[Any, Any]:
    """By the name of the module below this package. Modules are loaded when they are first needed."""
    handler = importlib.import_module(f"barnabas.broker.handlers.{module}").HANDLER
    assert isinstance(handler, Handler)
    return handler
