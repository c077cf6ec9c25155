from __future__ import annotations

import pytest

from barnabas.broker.quotas.quotas import DEFAULT, MAX_RATES, PRODUCER_BYTE_RATE, QuotaEntity, Quotas
from barnabas.broker.quotas.rates import Rate


def test_a_burst_at_the_beginning_is_spread_over_all_windows() -> None:
    rate = Rate(0)
    rate.record(10_000, 0)
    assert rate.measure(0) == (1_000.0, 10_000)
    assert rate.throttle_ms(1_000, 0) == 0
    assert rate.throttle_ms(500, 0) == 10_000
    assert rate.measure(4_500) == pytest.approx((10_000 / 10.5, 10_500))


def test_samples_go_when_they_are_older_than_all_windows() -> None:
    rate = Rate(0)
    for second in range(30):
        rate.record(100, second * 1_000)
    per_second, covered_ms = rate.measure(29_500)
    assert covered_ms == 10_500
    assert per_second == pytest.approx(1_100 / 10.5)
    assert rate.measure(60_000)[0] == 0.0


def test_what_is_taken_back_does_not_count() -> None:
    rate = Rate(0)
    rate.record(10_000, 0)
    rate.record(-10_000, 1)
    assert rate.measure(1)[0] == 0.0


def test_the_most_specific_entity_wins() -> None:
    books = Quotas()
    order = [
        QuotaEntity(None, DEFAULT),
        QuotaEntity(None, "app"),
        QuotaEntity(DEFAULT),
        QuotaEntity(DEFAULT, DEFAULT),
        QuotaEntity(DEFAULT, "app"),
        QuotaEntity("ann"),
        QuotaEntity("ann", DEFAULT),
        QuotaEntity("ann", "app"),
    ]
    for limit, entity in enumerate(order, 1):
        books.set_limits(entity, {PRODUCER_BYTE_RATE: float(limit)})
        assert books.limit(PRODUCER_BYTE_RATE, "ann", "app") == (entity, float(limit))
    assert books.limit("consumer_byte_rate", "ann", "app") is None
    for entity in reversed(order):
        found = books.limit(PRODUCER_BYTE_RATE, "ann", "app")
        assert found is not None
        assert found[0] == entity
        books.set_limits(entity, {})
    assert books.limit(PRODUCER_BYTE_RATE, "ann", "app") is None
    assert list(books) == []


def test_a_kind_is_known_as_long_as_anybody_has_a_quota_of_it() -> None:
    books = Quotas()
    for client_id in ("a", "b"):
        for limit in (1.0, 2.0):
            books.set_limits(QuotaEntity(None, client_id), {PRODUCER_BYTE_RATE: limit})
    books.set_limits(QuotaEntity(None, "a"), {"consumer_byte_rate": 1.0})
    assert books.has(PRODUCER_BYTE_RATE)
    assert books.has("consumer_byte_rate")
    books.set_limits(QuotaEntity(None, "b"), {})
    assert not books.has(PRODUCER_BYTE_RATE)
    books.set_limits(QuotaEntity(None, "b"), {})
    books.set_limits(QuotaEntity(None, "a"), {})
    assert not books.has("consumer_byte_rate")


def test_each_client_under_a_default_has_a_rate_of_its_own() -> None:
    books = Quotas()
    books.set_limits(QuotaEntity(None, DEFAULT), {PRODUCER_BYTE_RATE: 1_000.0})
    assert books.record(PRODUCER_BYTE_RATE, "ann", "loud", 20_000, 0) == 10_000
    assert books.record(PRODUCER_BYTE_RATE, "ann", "quiet", 100, 0) == 0
    books.set_limits(QuotaEntity("ann"), {PRODUCER_BYTE_RATE: 1_000.0})
    assert books.record(PRODUCER_BYTE_RATE, "ann", "loud", 9_000, 0) == 0
    assert books.record(PRODUCER_BYTE_RATE, "ann", "quiet", 2_000, 0) == 1_000
    books.take_back(PRODUCER_BYTE_RATE, "ann", "quiet", 2_000, 0)
    assert books.record(PRODUCER_BYTE_RATE, "ann", "quiet", 0, 0) == 0


def test_without_quotas_nothing_is_kept() -> None:
    books = Quotas()
    assert books.record(PRODUCER_BYTE_RATE, "ann", "app", 10**9, 0) == 0
    assert books._rates == {}


def test_rates_of_unknown_clients_are_bounded() -> None:
    books = Quotas()
    books.set_limits(QuotaEntity(None, DEFAULT), {PRODUCER_BYTE_RATE: 1.0})
    for number in range(MAX_RATES + 10):
        books.record(PRODUCER_BYTE_RATE, "ann", f"client-{number}", 1, 0)
    assert len(books._rates) == MAX_RATES
