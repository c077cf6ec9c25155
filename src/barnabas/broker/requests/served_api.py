"""An API as this broker serves it: the data that all its requests share."""

from __future__ import annotations

from typing import Final

from barnabas.broker.quotas.quotas import Quotas
from barnabas.broker.waiting.tasks import Tasks
from barnabas.clock import Clock
from barnabas.metrics.instruments import Counter, Histogram
from barnabas.protocol.apis import Api

_FETCH_KEY: Final = 1


class ApiMetrics:
    """The metrics of each API."""

    __slots__ = (
        "errors",
        "request_bytes",
        "requests",
        "response_bytes",
        "slow_ns",
        "times_s",
    )

    def __init__(
        self,
        requests: Counter,
        errors: Counter,
        request_bytes: Histogram,
        response_bytes: Counter,
        times_s: Histogram,
        slow_ns: int,
    ) -> None:
        self.requests = requests
        self.errors = errors
        self.request_bytes = request_bytes
        self.response_bytes = response_bytes
        self.times_s = times_s
        # A request that takes longer is logged.
        self.slow_ns = slow_ns


class ServedApi:
    """The API, its metrics, and the parts of the broker that every request needs."""

    __slots__ = (
        "api",
        "clock",
        "has_error_code",
        "has_records",
        "is_of_brokers",
        "metrics",
        "quotas",
        "tasks",
    )

    def __init__(
        self,
        api: Api,
        metrics: ApiMetrics,
        clock: Clock,
        quotas: Quotas,
        tasks: Tasks,
        *,
        is_of_brokers: bool = False,
    ) -> None:
        self.api = api
        self.metrics = metrics
        self.clock = clock
        self.quotas = quotas
        self.tasks = tasks
        # Whether only brokers send the requests: they are not throttled, and wait for no long request of a client.
        self.is_of_brokers: Final = is_of_brokers
        # Whether the response has an error code for the whole request: known once its type is loaded.
        self.has_error_code = False
        # Whether the response carries records, which are sent as slices of their files.
        self.has_records: Final = api.key == _FETCH_KEY
