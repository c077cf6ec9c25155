"""Client quotas: produced bytes, fetched bytes and time on the event loop, by user and client id.

A quota is set for an entity: a user, a client id, both, or the default of either. The most specific entity with a quota
of the kind wins, in Kafka's order. Each user and client id that a default covers has its own rate. A client that
exceeds it gets its response at once, and its connection is then muted until the rate is down again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeVar

from barnabas.broker.quotas.bucket import TokenBucket
from barnabas.broker.quotas.rates import WINDOW_MS, WINDOWS, Rate

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")

# In an entity: every user (or client id) without its own quota.
DEFAULT: Final = "<default>"

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

CLIENT_QUOTA_KEYS: Final = frozenset(
    {PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE}
)
IP_QUOTA_KEYS: Final = frozenset({CONNECTION_CREATION_RATE})

# Client ids come from clients: the rates of the least recent ones make room for new ones.
MAX_RATES: Final = 10_000


class QuotaEntity(NamedTuple):
    """None if the entity does not have this side."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None


def _candidates(user: str, client_id: str) -> tuple[QuotaEntity, ...]:
    """From the most specific to the most general, as Kafka looks them up."""
    return (
        QuotaEntity(user, client_id),
        QuotaEntity(user, DEFAULT),
        QuotaEntity(user),
        QuotaEntity(DEFAULT, client_id),
        QuotaEntity(DEFAULT, DEFAULT),
        QuotaEntity(DEFAULT),
        QuotaEntity(None, client_id),
        QuotaEntity(None, DEFAULT),
    )


class Quotas:
    """The quotas, and the rates of the clients that are subject to them."""

    def __init__(self) -> None:
        self._limits: dict[QuotaEntity, dict[str, float]] = {}
        self._rates: dict[tuple[str, str | None, str | None], Rate] = {}
        self._buckets: dict[tuple[str, str | None, str | None], TokenBucket] = {}
        # The number of entities with a quota of a type, and the types that have any.
        self._counts: dict[str, int] = {}
        self._kinds: frozenset[str] = frozenset()
        # Addresses of hosts whose quota is set for their name.
        self._names_by_address: dict[str, str] = {}

    def __iter__(self) -> Iterator[tuple[QuotaEntity, Mapping[str, float]]]:
        return iter(self._limits.items())

    def set_limits(self, entity: QuotaEntity, limits: Mapping[str, float]) -> None:
        """Sets the quotas of an entity. An empty mapping removes it."""
        if entity.ip is not None and (address := address_of(entity.ip)) is not None:
            entity = entity._replace(ip=address)
        counts = self._counts
        for kind in self._limits.pop(entity, {}):
            counts[kind] -= 1
        if limits:
            self._limits[entity] = dict(limits)
        for kind in limits:
            counts[kind] = counts.get(kind, 0) + 1
        self._kinds = frozenset([kind for kind, count in counts.items() if count])

    def has(self, kind: str) -> bool:
        """Whether any quota of the kind is set."""
        return kind in self._kinds

    def limit(self, kind: str, user: str, client_id: str) -> tuple[QuotaEntity, float] | None:
        return self._first(kind, _candidates(user, client_id)) if kind in self._kinds else None

    def limit_of_ip(self, kind: str, address: str) -> float | None:
        candidates = [QuotaEntity(ip=address), QuotaEntity(ip=DEFAULT)]
        name = self._names_by_address.get(address)
        if name is not None:
            candidates.insert(1, QuotaEntity(ip=name))
        found = self._first(kind, candidates)
        return None if found is None else found[1]

    def max_in_window(self, kind: str, user: str, client_id: str) -> float:
        """How much an idle client may use at once without a throttle."""
        found = self.limit(kind, user, client_id)
        return math.inf if found is None else found[1] * (WINDOWS - 1) * WINDOW_MS / 1_000

    def note_addresses(self, name: str, addresses: Iterable[str]) -> None:
        """Applies the quota of a host name to these addresses."""
        for before in [at for at, known in self._names_by_address.items() if known == name]:
            del self._names_by_address[before]
        self._names_by_address.update(dict.fromkeys(addresses, name))

    def _first(self, kind: str, candidates: Iterable[QuotaEntity]) -> tuple[QuotaEntity, float] | None:
        for entity in candidates:
            limits = self._limits.get(entity)
            if limits is not None and kind in limits:
                return entity, limits[kind]
        return None

    def record(self, kind: str, user: str, client_id: str, amount: float, now_ms: int) -> int:
        """Counts the use of a client; returns the throttle time in milliseconds."""
        # Usually there is no quota of the type, and this check is all that a request costs.
        if kind not in self._kinds:
            return 0
        found = self.limit(kind, user, client_id)
        if found is None:
            return 0
        entity, limit = found
        rate = self._rate(kind, entity, user, client_id, now_ms)
        rate.record(amount, now_ms)
        return rate.throttle_ms(limit, now_ms)

    def take_back(self, kind: str, user: str, client_id: str, amount: float, now_ms: int) -> None:
        """Takes back the record of a response that was not sent."""
        found = self.limit(kind, user, client_id)
        if found is not None:
            self._rate(kind, found[0], user, client_id, now_ms).record(-amount, now_ms)

    def bucket(self, kind: str, user: str, client_id: str, now_ms: int) -> tuple[TokenBucket, float] | None:
        """For a quota with tokens: the client's bucket, and its tokens per second."""
        found = self.limit(kind, user, client_id)
        if found is None:
            return None
        entity, limit = found
        key = _key(kind, entity, user, client_id)
        return recent(self._buckets, key, lambda: TokenBucket(now_ms)), limit

    def _rate(self, kind: str, entity: QuotaEntity, user: str, client_id: str, now_ms: int) -> Rate:
        return recent(self._rates, _key(kind, entity, user, client_id), lambda: Rate(now_ms))


def address_of(text: str) -> str | None:
    """An address in the form of the addresses of peers; None if the text is no address."""
    import ipaddress  # Few brokers have such a quota, and the import would slow down every start.

    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    return str((found.version == 6 and found.ipv4_mapped) or found)


def _key(kind: str, entity: QuotaEntity, user: str, client_id: str) -> tuple[str, str | None, str | None]:
    """The key of a rate that several clients may share."""
    return kind, user if entity.user else None, client_id if entity.client_id else None


def recent(cache: dict[KeyT, ValueT], key: KeyT, make: Callable[[], ValueT]) -> ValueT:
    """The value of the key, created if it is missing. The least recently used value makes room for it."""
    value = cache.pop(key, None)
    if value is None:
        if len(cache) >= MAX_RATES:
            del cache[next(iter(cache))]
        value = make()
    cache[key] = value
    return value
