"""From a frame to the handler of its API."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import load_handler
from barnabas.broker.requests.exchange import Answer, AnyExchange, Exchange
from barnabas.broker.requests.routes import BROKER_ROUTES, Route, routes
from barnabas.broker.requests.served_api import ApiMetrics, ServedApi
from barnabas.broker.requests.session import ClientSession
from barnabas.coordination.metadata.image import MetadataImage
from barnabas.errors import InvalidRequest, KafkaError, UnsupportedVersion
from barnabas.metrics.registry import SIZE_BOUNDS_BYTES
from barnabas.net.connection import Connection
from barnabas.protocol.codec import decode_prefix
from barnabas.protocol.message import field_names
from barnabas.protocol.requests import decode_request_header

API_VERSIONS_KEY: Final = 18

# How many elements (topics, partitions, groups and so on) one request may name: it costs time and memory to answer for
# each of them. A client has no reason to name many more than there are.
ELEMENTS_MIN: Final = 20_000
# The controller sends a broker partitions that the broker does not know yet, with all their replicas.
ELEMENTS_OF_BROKERS_MAX: Final = 2_000_000
# Decoding a large request takes long: of these requests one is begun at a time, see `turns`. Most of a Produce request
# is records, which are not decoded.
LARGE_BYTES: Final = 16 * 1024
LARGE_PRODUCE_BYTES: Final = 256 * 1024
PRODUCE_KEY: Final = 0


class Endpoint:
    """Dispatch's data for each API: its versions, its metrics, and its handler once loaded."""

    __slots__ = (
        "cluster_operation",
        "first_version",
        "handle",
        "last_version",
        "module",
        "refused",
        "request_class",
        "served",
    )

    def __init__(self, route: Route, served: ServedApi) -> None:
        self.served = served
        self.first_version = route.first_version
        self.last_version = route.last_version
        self.module = route.module
        # The operation on the cluster that a client needs, see `routes`.
        self.cluster_operation = route.access.cluster_operation
        self.handle: Callable[[Broker, AnyExchange, Any], Answer[Any]] | None = None
        self.refused: Callable[[Any, KafkaError, int], Any] | None = None
        self.request_class: type[Any] | None = None

    def load(self) -> Callable[[Broker, AnyExchange, Any], Answer[Any]]:
        handler = load_handler(self.module)
        self.served.has_error_code = "error_code" in field_names(handler.response_class())
        self.request_class = handler.request_class
        self.refused = handler.refused
        self.handle = handler.handle
        return handler.handle


class Dispatcher:
    """The handler of one listener's connections. `endpoints` may grow while the broker starts."""

    def __init__(self, broker: Broker, listener: str, endpoints: dict[int, Endpoint]) -> None:
        self._broker = broker
        self._listener = listener
        self._endpoints = endpoints
        # The image whose partitions were counted last.
        self._counted: MetadataImage | None = None
        self._partition_count = 0

    def __call__(self, connection: Connection, frame: bytes) -> None:
        session = connection.context
        if session is None:
            session = connection.context = ClientSession(
                listener=self._listener, host=connection.peer.rpartition(":")[0].strip("[]")
            )
        assert isinstance(session, ClientSession)
        api, header, position = decode_request_header(frame)
        endpoint = self._endpoints.get(api.key)
        if endpoint is None:
            if PRODUCE_KEY not in self._endpoints:
                # Clients come later. To them the broker is still down.
                connection.close(None, "before the broker is ready")
                return
            raise InvalidRequest(f"{api.name} is not answered here")
        served = endpoint.served
        exchange: AnyExchange = Exchange(
            connection,
            session,
            served,
            header.request_api_version,
            header.correlation_id,
            header.client_id or "",
        )
        served.metrics.requests.value += 1
        served.metrics.request_bytes.observe(len(frame))
        if (
            len(frame) > LARGE_BYTES
            and (api.key != PRODUCE_KEY or len(frame) > LARGE_PRODUCE_BYTES)
            and not served.is_of_brokers
        ):
            self._broker.turns.begin(partial(self._answer_in_turn, endpoint, exchange, frame, position))
        else:
            self._answer(endpoint, exchange, frame, position)

    def _answer_in_turn(self, endpoint: Endpoint, exchange: AnyExchange, frame: bytes, position: int) -> None:
        if not exchange.connection.is_closed:
            self._answer(endpoint, exchange, frame, position)

    def _answer(self, endpoint: Endpoint, exchange: AnyExchange, frame: bytes, position: int) -> None:
        version = exchange.version
        try:
            if not endpoint.first_version <= version <= endpoint.last_version:
                self._refuse_version(endpoint, exchange)
                return
            handle = endpoint.handle or endpoint.load()
            assert endpoint.request_class is not None
            # Bytes behind a request are ignored, as in Apache Kafka: librdkafka's Metadata for all topics has three.
            request, _ = decode_prefix(
                endpoint.request_class,
                frame,
                version,
                position,
                ELEMENTS_OF_BROKERS_MAX if endpoint.served.is_of_brokers else self._elements_max(frame),
            )
            if self._broker.authorization is not None and self._is_denied(endpoint, exchange, request):
                return
            exchange.answer(handle(self._broker, exchange, request))
        except Exception as error:
            exchange.fail(error)

    def _is_denied(self, endpoint: Endpoint, exchange: AnyExchange, request: Any) -> bool:
        """Whether the client may not send the request at all. Then it is answered."""
        operation = endpoint.cluster_operation
        if operation is None:
            return False
        # A broker without an authorizer does not load them when it starts.
        from barnabas.broker.handlers.permissions import denies
        from barnabas.broker.requests.authorization import cluster_refusal

        if not denies(self._broker, exchange, operation):
            return False
        assert endpoint.refused is not None
        error = cluster_refusal(exchange, operation)
        exchange.answer(endpoint.refused(request, error, exchange.version))
        return True

    def _elements_max(self, frame: bytes) -> int:
        if len(frame) <= ELEMENTS_MIN:
            return ELEMENTS_MIN
        image = self._broker.image
        if image is not self._counted:
            self._counted = image
            self._partition_count = image.partition_count
        return ELEMENTS_MIN + 2 * self._partition_count

    def _refuse_version(self, endpoint: Endpoint, exchange: AnyExchange) -> None:
        """A client newer than the broker learns which versions there are. It should not send any other such request."""
        api = endpoint.served.api
        if api.key != API_VERSIONS_KEY:
            raise UnsupportedVersion(
                f"{api.name} version {exchange.version}: only {endpoint.first_version} to"
                f" {endpoint.last_version} are answered here"
            )
        from barnabas.broker.handlers.cluster.api_versions import unsupported_version

        if endpoint.handle is None:
            endpoint.load()
        exchange.version = 0
        exchange.answer(unsupported_version())


def build_endpoints(broker: Broker) -> dict[int, Endpoint]:
    """By API key, shared by all listeners."""
    metrics = broker.metrics
    name = "kafka_network_requestmetrics_"
    requests = metrics.counter(name + "requests_total", "Requests received.", "request")
    errors = metrics.counter(
        name + "errors_total",
        "Requests that failed as a whole: with an error of their own, or the end of the connection.",
        "request",
    )
    request_bytes = metrics.histogram(
        name + "requestbytes", "Sizes of requests.", "request", bounds=SIZE_BOUNDS_BYTES
    )
    response_bytes = metrics.counter(name + "responsebytes_total", "Bytes of responses.", "request")
    times = metrics.histogram(
        name + "totaltime_seconds", "Time from the arrival of a request to its response.", "request"
    )
    slow_ns = broker.config.barnabas_slow_request_ms * 1_000_000
    endpoints = {}
    for route in routes(in_cluster=broker.config.is_in_cluster):
        api_metrics = ApiMetrics(
            requests.labels(route.name),
            errors.labels(route.name),
            request_bytes.labels(route.name),
            response_bytes.labels(route.name),
            times.labels(route.name),
            slow_ns,
        )
        served = ServedApi(
            route.api,
            api_metrics,
            broker.clock,
            broker.quotas,
            broker.tasks,
            is_of_brokers=route in BROKER_ROUTES,
        )
        endpoints[route.api.key] = Endpoint(route, served)
    return endpoints
