"""Metrics that clients push (KIP-714): the subscriptions of each client, and its newest values.

Apache Kafka passes the metrics to a plugin, and hides the two APIs without one. Here the broker itself is the receiver:
it shows the values among its own metrics. A client without a matching subscription pushes nothing, and asks again after
five minutes.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from random import Random
from typing import TYPE_CHECKING, Final

from barnabas.broker.telemetry.configs import INTERVAL_DEFAULT_MS, Subscription, parse_subscription
from barnabas.clock import Clock
from barnabas.config.live_settings import LiveSettings
from barnabas.coordination.metadata.cache import MetadataCache, Stage
from barnabas.coordination.metadata.identity import random_id
from barnabas.coordination.metadata.image import MetadataImage
from barnabas.coordination.metadata.tree import encode_uuid
from barnabas.errors import (
    InvalidConfig,
    InvalidRecord,
    InvalidRequest,
    KafkaError,
    TelemetryTooLarge,
    ThrottlingQuotaExceeded,
    UnknownSubscriptionId,
    UnsupportedCompressionType,
)
from barnabas.metrics.registry import MAX_SERIES_A_FAMILY, Registry
from barnabas.primitives.crc32c import crc32c
from barnabas.records.compression import decompress
from barnabas.records.layout import CompressionType

if TYPE_CHECKING:
    from barnabas.broker.telemetry.otlp import Attributes

log = logging.getLogger(__name__)

ALL_METRICS: Final = "*"
# These are Apache Kafka's values.
INSTANCES_MAX: Final = 16_384
_EXPIRY_MIN_MS: Final = 60_000
_EXPIRY_INTERVALS: Final = 3
_RESERVED_IDS: Final = frozenset({bytes(16), bytes(15) + b"\x01"})
# The bound of one push: reading it takes a few milliseconds of the event loop.
SAMPLES_MAX: Final = 500
_LABEL_CHARACTERS: Final = re.compile(r"[^a-zA-Z0-9_]")
_NEVER_MS: Final = -(1 << 62)


class ClientInstance:
    """A client that may push, with its subscriptions."""

    __slots__ = (
        "asked_ms",
        "attributes",
        "interval_ms",
        "is_terminating",
        "last_error",
        "metrics",
        "pushed_ms",
        "subscription_id",
        "used_ms",
        "values",
        "version",
    )

    def __init__(self, attributes: Mapping[str, str]) -> None:
        self.attributes = attributes
        self.values: dict[tuple[str, Attributes], float] = {}
        self.used_ms = _NEVER_MS
        self.subscribe(-1, frozenset(), INTERVAL_DEFAULT_MS, 0)

    def subscribe(
        self, version: int, metrics: frozenset[str], interval_ms: int, subscription_id: int
    ) -> None:
        """Starts again with a new version of the subscriptions."""
        self.version = version
        self.metrics = metrics
        self.interval_ms = interval_ms
        self.subscription_id = subscription_id
        self.asked_ms = self.pushed_ms = _NEVER_MS
        self.is_terminating = False
        self.last_error: type[KafkaError] | None = None


class ClientMetrics:
    def __init__(
        self,
        cache: MetadataCache,
        settings: LiveSettings,
        clock: Clock,
        rng: Random,
        metrics: Registry,
    ) -> None:
        self._cache = cache
        self._settings = settings
        self._clock = clock
        self._rng = rng
        # Counts changes of the subscriptions. After a change each client is matched again.
        self._version = 0
        self._subscriptions: dict[str, Subscription] = {}
        self._instances: OrderedDict[bytes, ClientInstance] = OrderedDict()
        self._value_count = 0
        name = "kafka_server_client_metrics_"
        metrics.gauge(name + "instance_count", "Clients that push metrics, or may.", lambda: len(self))
        metrics.gauge(
            "barnabas_client_metrics", "What clients have pushed last, by client and metric.", self.readings
        )
        counter = metrics.counter(name + "push_count", "Pushes of metrics by clients.", "result")
        self._pushes = {result: counter.labels(result) for result in ("taken", "refused")}

    def __len__(self) -> int:
        return len(self._instances)

    @property
    def telemetry_max_bytes(self) -> int:
        return self._settings.current.telemetry_max_bytes

    def begin(self) -> None:
        """Starts to follow the metadata."""
        self._subscribe({}, self._cache.image.client_metrics)
        self._cache.subscribe(Stage.CLIENTS, self._on_image)

    def _on_image(self, before: MetadataImage, after: MetadataImage) -> None:
        if before.client_metrics is not after.client_metrics:
            self._subscribe(before.client_metrics, after.client_metrics)

    def _subscribe(
        self, before: Mapping[str, Mapping[str, str]], after: Mapping[str, Mapping[str, str]]
    ) -> None:
        self._version += 1
        known, self._subscriptions = self._subscriptions, {}
        for name, properties in after.items():
            if name in known and before.get(name) is properties:
                self._subscriptions[name] = known[name]
                continue
            try:
                self._subscriptions[name] = parse_subscription(properties)
            except (InvalidConfig, InvalidRequest) as error:
                log.warning("The client metrics subscription %s is not used: %s", name, error)

    def subscription(self, instance_id: bytes, attributes: Mapping[str, str]) -> tuple[bytes, ClientInstance]:
        """The subscription and the id of a client. Raises an error if the client may not ask now."""
        if instance_id == bytes(16):
            instance_id = random_id(self._rng)
        instance = self._instance(instance_id, attributes)
        now_ms = self._clock.now_ms()
        if now_ms - max(instance.asked_ms, instance.pushed_ms) >= instance.interval_ms:
            instance.asked_ms = now_ms
        elif instance.last_error not in (UnknownSubscriptionId, UnsupportedCompressionType):
            raise _too_early(instance_id)
        instance.last_error = None
        return instance_id, instance

    def push(
        self,
        instance_id: bytes,
        attributes: Mapping[str, str],
        *,
        subscription_id: int,
        is_terminating: bool,
        compression: int,
        data: bytes,
    ) -> None:
        """Stores a push. Raises the reason if it is refused."""
        if instance_id in _RESERVED_IDS:
            raise InvalidRequest(
                f"Invalid request from the client [{encode_uuid(instance_id)}], invalid client instance id"
            )
        instance = self._instance(instance_id, attributes)
        try:
            self._check_push(instance_id, instance, subscription_id, is_terminating, compression, len(data))
            if data:
                self._take(instance, decompress_metrics(data, compression, self.telemetry_max_bytes))
        except KafkaError as error:
            instance.last_error = type(error)
            self._pushes["refused"].value += 1
            raise
        finally:
            instance.is_terminating = is_terminating
        instance.last_error = None
        self._pushes["taken"].value += 1

    def _check_push(
        self,
        instance_id: bytes,
        instance: ClientInstance,
        subscription_id: int,
        is_terminating: bool,
        compression: int,
        size_bytes: int,
    ) -> None:
        client = f"[{encode_uuid(instance_id)}]"
        if instance.is_terminating:
            raise InvalidRequest(
                f"Client {client} sent the previous request with state terminating to TRUE, can not accept any requests"
                " after that"
            )
        now_ms = self._clock.now_ms()
        # A client may push as soon as it has its subscription.
        is_due = instance.asked_ms > instance.pushed_ms or now_ms - instance.pushed_ms >= instance.interval_ms
        if is_due:
            instance.pushed_ms = now_ms
        elif not is_terminating:
            raise _too_early(instance_id)
        if subscription_id != instance.subscription_id:
            raise UnknownSubscriptionId(f"Unknown client subscription id for the client {client}")
        if compression not in CompressionType._value2member_map_:
            raise UnsupportedCompressionType(
                f"Unknown compression type [{compression}] is received in telemetry request from {client}"
            )
        if size_bytes > self.telemetry_max_bytes:
            raise TelemetryTooLarge(
                f"Telemetry request from {client} is larger than the maximum allowed size [{self.telemetry_max_bytes}]"
            )

    def _instance(self, instance_id: bytes, attributes: Mapping[str, str]) -> ClientInstance:
        now_ms = self._clock.now_ms()
        self._expire(now_ms)
        instance = self._instances.get(instance_id)
        if instance is None:
            if len(self._instances) >= INSTANCES_MAX:
                self._forget_oldest()
            known = {**attributes, "client_instance_id": encode_uuid(instance_id)}
            instance = self._instances[instance_id] = ClientInstance(known)
        self._instances.move_to_end(instance_id)
        instance.used_ms = now_ms
        if instance.version != self._version:
            self._find_subscriptions(instance_id, instance)
        return instance

    def _find_subscriptions(self, instance_id: bytes, instance: ClientInstance) -> None:
        matching = [each for each in self._subscriptions.values() if each.matches(instance.attributes)]
        metrics = frozenset().union(*(each.metrics for each in matching))
        if ALL_METRICS in metrics:
            metrics = frozenset({ALL_METRICS})
        interval_ms = min((each.interval_ms for each in matching), default=INTERVAL_DEFAULT_MS)
        interval_ms = min(interval_ms, INTERVAL_DEFAULT_MS)
        text = f"{','.join(sorted(metrics))} {interval_ms} ".encode()
        unsigned = crc32c(text + instance_id)
        subscription_id = unsigned - (1 << 32) if unsigned >> 31 else unsigned
        instance.subscribe(self._version, metrics, interval_ms, subscription_id)

    def _expire(self, now_ms: int) -> None:
        """Removes clients that have been silent for long."""
        while self._instances:
            oldest = next(iter(self._instances.values()))
            if now_ms - oldest.used_ms < max(_EXPIRY_MIN_MS, oldest.interval_ms * _EXPIRY_INTERVALS):
                return
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        _, instance = self._instances.popitem(last=False)
        self._value_count -= len(instance.values)

    def _take(self, instance: ClientInstance, data: bytes) -> None:
        values = instance.values
        # Few brokers get metrics from clients, and the others start without this module.
        from barnabas.broker.telemetry.otlp import parse_samples

        for sample in parse_samples(data, SAMPLES_MAX):
            key = (sample.name, sample.attributes)
            known = values.get(key)
            if known is None:
                if len(values) >= SAMPLES_MAX or self._value_count >= MAX_SERIES_A_FAMILY:
                    continue
                self._value_count += 1
            values[key] = sample.value + (known or 0.0) if sample.is_delta else sample.value

    def readings(self) -> Iterator[tuple[Mapping[str, str], float]]:
        self._expire(self._clock.now_ms())
        for instance in self._instances.values():
            for (name, attributes), value in instance.values.items():
                labels = {_LABEL_CHARACTERS.sub("_", key) or "_": text for key, text in attributes}
                yield {**labels, **instance.attributes, "metric": name}, value


def decompress_metrics(data: bytes, compression: int, max_bytes: int) -> bytes:
    """A push may not expand to more than its size limit without compression."""
    try:
        return decompress(data, CompressionType(compression), max_decompressed_bytes=max_bytes)
    except KafkaError as error:
        raise InvalidRecord(f"the metrics cannot be decompressed: {error}") from error


def _too_early(instance_id: bytes) -> ThrottlingQuotaExceeded:
    return ThrottlingQuotaExceeded(
        f"Request from the client [{encode_uuid(instance_id)}] arrived before the next push interval time"
    )
