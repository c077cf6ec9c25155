"""The declaration of each API's module: `HANDLER`, with its request, its response and the function between them.

The types belong together: mypy rejects a function with another request or response, and a function that can end
without an answer. A declaration that every API needs is a required argument here, so no API can be added without it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeAlias, TypeVar

from barnabas.broker.broker import Broker
from barnabas.broker.requests.exchange import Answer, Exchange
from barnabas.errors import KafkaError
from barnabas.protocol.message import Message, field_names

RequestT = TypeVar("RequestT", bound=Message)
ResponseT = TypeVar("ResponseT", bound=Message)


# The response to a request that is refused as a whole, for an error and a version.
Refusing: TypeAlias = Callable[[RequestT, KafkaError, int], ResponseT]


class Handler(Generic[RequestT, ResponseT]):
    """`refuse` is the response to a request that the client may not send; by default it has one error code."""

    __slots__ = ("handle", "refuse", "request_class", "response_class")

    def __init__(
        self,
        request_class: type[RequestT],
        response_class: type[ResponseT],
        handle: Callable[[Broker, Exchange[ResponseT], RequestT], Answer[ResponseT]],
        *,
        refuse: Refusing[RequestT, ResponseT] | None = None,
    ) -> None:
        self.request_class = request_class
        self.response_class = response_class
        self.handle = handle
        self.refuse = refuse

    def refused(self, request: RequestT, error: KafkaError, version: int) -> ResponseT:
        if self.refuse is not None:
            return self.refuse(request, error, version)
        response: Any = self.response_class()
        names = field_names(response)
        assert "error_code" in names, f"{self.response_class.__name__} has no error for the whole request"
        response.error_code = error.code
        if "error_message" in names:
            response.error_message = str(error)
        refused: ResponseT = response
        return refused


def coroutine_handler(
    request_class: type[RequestT],
    response_class: type[ResponseT],
    handle: Callable[[Broker, Exchange[ResponseT], RequestT], Coroutine[Any, Any, Answer[ResponseT]]],
    *,
    refuse: Refusing[RequestT, ResponseT] | None = None,
) -> Handler[RequestT, ResponseT]:
    """For an API whose requests always wait for something, a change of the cluster for example."""

    def answer(broker: Broker, exchange: Exchange[ResponseT], request: RequestT) -> Answer[ResponseT]:
        return exchange.answer_from(handle(broker, exchange, request))

    return Handler(request_class, response_class, answer, refuse=refuse)


def load_handler(module: str) -> Handler[Any, Any]:
    """By the name of the module below this package. Modules are loaded when they are first needed."""
    handler = importlib.import_module(f"barnabas.broker.handlers.{module}").HANDLER
    assert isinstance(handler, Handler)
    return handler
