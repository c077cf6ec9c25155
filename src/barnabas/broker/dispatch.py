"""From a frame to the handler of its API."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from functools import partial
from types import CoroutineType
from typing import Any, Final

from barnabas.broker.broker import Broker
from barnabas.broker.requests.exchange import ApiMetrics, ClientSession, Exchange
from barnabas.broker.requests.routes import ROUTES, Route
from barnabas.errors import InvalidRequest, UnsupportedVersion
from barnabas.metrics.registry import SIZE_BOUNDS_BYTES
from barnabas.net.connection import Connection
from barnabas.protocol.apis import Api
from barnabas.protocol.codec import decode_prefix
from barnabas.protocol.message import field_names
from barnabas.protocol.requests import decode_request_header

log = logging.getLogger(__name__)

API_VERSIONS_KEY: Final = 18

# Topics, partitions, groups and whatever else one request may name: a request has the event loop to itself until all
# of them are answered for. Nobody has reason to name more than there are, and a good many that are not there.
ELEMENTS_MIN: Final = 20_000
# To take a large request apart takes its time: of these one is begun at a time, see `turns`. Most of a Produce request
# are records, which are not taken apart.
LARGE_BYTES: Final = 16 * 1024
LARGE_PRODUCE_BYTES: Final = 256 * 1024
PRODUCE_KEY: Final = 0


async def _respond_later(exchange: Exchange, coming: Coroutine[Any, Any, Any]) -> None:
    """What takes longer than a moment (a change of the cluster, say). Its errors are those of any handler."""
    try:
        response = await coming
        if response is not None:
            exchange.respond(response)
    except Exception as error:
        exchange.fail(error)


class Endpoint:
    """What dispatch keeps for each API: its versions, its handler once loaded, its metrics."""

    __slots__ = ("api", "first_version", "handle", "last_version", "metrics", "request_class", "route")

    def __init__(self, route: Route, metrics: ApiMetrics) -> None:
        self.route = route
        self.api: Api = route.api
        self.first_version = route.first_version
        self.last_version = route.last_version
        self.metrics = metrics
        self.handle: Callable[..., Any] | None = None
        self.request_class: type[Any] | None = None


class Dispatcher:
    """The handler of one listener's connections."""

    def __init__(self, broker: Broker, listener: str, endpoints: dict[int, Endpoint]) -> None:
        self._broker = broker
        self._listener = listener
        self._endpoints = endpoints

    def __call__(self, connection: Connection, frame: bytes) -> None:
        session = connection.context
        if session is None:
            session = connection.context = ClientSession(
                listener=self._listener, host=connection.peer.rpartition(":")[0].strip("[]")
            )
        assert isinstance(session, ClientSession)
        api, header, position = decode_request_header(frame)
        version = header.request_api_version
        endpoint = self._endpoints.get(api.key)
        if endpoint is None:
            raise InvalidRequest(f"{api.name} is not answered here")
        exchange = Exchange(
            connection,
            session,
            api,
            version,
            header.correlation_id,
            header.client_id or "",
            endpoint.metrics,
            self._broker.clock,
            self._broker.quotas,
        )
        endpoint.metrics.requests.value += 1
        endpoint.metrics.request_bytes.observe(len(frame))
        if len(frame) > LARGE_BYTES and (api.key != PRODUCE_KEY or len(frame) > LARGE_PRODUCE_BYTES):
            self._broker.turns.begin(partial(self._answer_in_turn, endpoint, exchange, frame, position))
            return
        try:
            self._answer(endpoint, exchange, frame, position)
        except Exception:
            # Whatever it is, the connection ends by it.
            endpoint.metrics.errors.value += 1
            raise

    def _answer_in_turn(self, endpoint: Endpoint, exchange: Exchange, frame: bytes, position: int) -> None:
        if exchange.connection.is_closed:
            return
        try:
            self._answer(endpoint, exchange, frame, position)
        except Exception as error:
            exchange.fail(error)

    def _answer(self, endpoint: Endpoint, exchange: Exchange, frame: bytes, position: int) -> None:
        version = exchange.version
        if not endpoint.first_version <= version <= endpoint.last_version:
            self._refuse_version(endpoint, exchange)
            return
        handle = endpoint.handle
        if handle is None:
            handle = endpoint.handle = endpoint.route.load()
            endpoint.request_class = endpoint.api.request_class()
            endpoint.metrics.tells_error = "error_code" in field_names(endpoint.api.response_class()())
        assert endpoint.request_class is not None
        # Bytes behind a request are left alone, as in Apache Kafka: librdkafka's Metadata for all topics has three.
        request, _ = decode_prefix(
            endpoint.request_class, frame, version, position, self._elements_max(frame)
        )
        response = handle(self._broker, exchange, request)
        if type(response) is CoroutineType:
            exchange.park(on_purpose=False)
            self._broker.tasks.start(_respond_later(exchange, response))
        elif response is not None:
            exchange.respond(response)
        else:
            exchange.park(on_purpose=True)

    def _elements_max(self, frame: bytes) -> int:
        if len(frame) <= ELEMENTS_MIN:
            return ELEMENTS_MIN
        return ELEMENTS_MIN + 2 * self._broker.image.partition_count

    def _refuse_version(self, endpoint: Endpoint, exchange: Exchange) -> None:
        """A client that is newer than we are is told which versions there are; any other request it should not send."""
        if endpoint.api.key != API_VERSIONS_KEY:
            raise UnsupportedVersion(
                f"{endpoint.api.name} version {exchange.version}: only {endpoint.first_version} to"
                f" {endpoint.last_version} are answered here"
            )
        from barnabas.broker.handlers.cluster.api_versions import unsupported_version

        exchange.version = 0
        exchange.metrics.errors.value += 1
        exchange.respond(unsupported_version())


def build_endpoints(broker: Broker) -> dict[int, Endpoint]:
    """By API key, shared by all listeners."""
    registry = broker.metrics
    name = "kafka_network_requestmetrics_"
    requests = registry.counter(name + "requests_total", "Requests received.", "request")
    errors = registry.counter(
        name + "errors_total",
        "Requests that failed as a whole: with an error of their own, or the end of the connection.",
        "request",
    )
    request_bytes = registry.histogram(
        name + "requestbytes", "Sizes of requests.", "request", bounds=SIZE_BOUNDS_BYTES
    )
    response_bytes = registry.counter(name + "responsebytes_total", "Bytes of responses.", "request")
    times = registry.histogram(
        name + "totaltime_seconds", "Time from the arrival of a request to its response.", "request"
    )
    slow_ns = broker.config.barnabas_slow_request_ms * 1_000_000
    endpoints = {}
    for route in ROUTES:
        metrics = ApiMetrics(
            requests.labels(route.name),
            errors.labels(route.name),
            request_bytes.labels(route.name),
            response_bytes.labels(route.name),
            times.labels(route.name),
            slow_ns,
        )
        endpoints[route.api.key] = Endpoint(route, metrics)
    return endpoints
