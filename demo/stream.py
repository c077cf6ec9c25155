"""One hour of events of a shop, generated from a seed: clicks, orders, and invalid records."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

SEED: Final = 8
BEGIN: Final = datetime(2026, 5, 1, 9, 0, tzinfo=UTC)
HOUR_S: Final = 3600
CLICKS: Final = 60_000
ORDERS: Final = 6_000
ONE_IN_BROKEN: Final = 1_000
CUSTOMERS: Final = 8
CATEGORIES: Final = {"books": 18_00, "music": 12_00, "tools": 45_00}
DEVICES: Final = ("phone", "tablet", "laptop")
PAGES: Final = ("/", "/search", "/basket", "/account")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    topic: str
    key: bytes
    value: bytes


def products() -> Iterator[Event]:
    """Nine products, and the stock that three of them have now: the later record counts."""
    for category in CATEGORIES:
        for number in range(3):
            yield _event(
                "products", f"{category}-{number}", {"title": f"{category} no. {number}", "stock": 10}
            )
    for category in CATEGORIES:
        yield _event("products", f"{category}-0", {"title": f"{category} no. 0, new", "stock": 99})


def hour() -> Iterator[Event]:
    """Clicks and orders in the order of their time, which is not quite that of their arrival."""
    chooser = random.Random(SEED)
    times = sorted(chooser.uniform(0, HOUR_S) for _ in range(CLICKS + ORDERS))
    is_order = [True] * ORDERS + [False] * CLICKS
    chooser.shuffle(is_order)
    for number, (second, ordered) in enumerate(zip(times, is_order, strict=True)):
        at = BEGIN + timedelta(seconds=max(0.0, second - chooser.uniform(0, 30)))
        event = _order(chooser, number, at) if ordered else _click(chooser, at)
        if ordered and chooser.randrange(ONE_IN_BROKEN) == 0:
            event = Event(topic=event.topic, key=event.key, value=event.value[:-10])
        yield event
    # Another order half an hour later closes all windows before it.
    yield _order(chooser, CLICKS + ORDERS, BEGIN + timedelta(seconds=1.5 * HOUR_S))


def expected_revenue(events: list[Event]) -> Counter[tuple[str, str]]:
    """The expected result of the pipeline `revenue`: cents by window and category, of orders that can be decoded."""
    found: Counter[tuple[str, str]] = Counter()
    for event in events:
        try:
            order = json.loads(event.value) if event.topic == "orders" else None
        except ValueError:
            continue
        if order is not None:
            at = datetime.fromisoformat(order["at"])
            since = at.replace(minute=at.minute // 10 * 10, second=0, microsecond=0)
            if since < BEGIN + timedelta(seconds=HOUR_S):
                found[since.strftime("%H:%M"), order["product"].partition("-")[0]] += order["cents"]
    return found


def _click(chooser: random.Random, at: datetime) -> Event:
    customer = chooser.randrange(CUSTOMERS)
    click = {
        "customer": customer,
        "page": chooser.choices(PAGES, (8, 5, 2, 1))[0],
        "device": chooser.choices(DEVICES, (6, 1, 3))[0],
        "ms": int(chooser.lognormvariate(4, 0.6)),
        "at": at.isoformat(),
    }
    return _event("clicks", str(customer), click)


def _order(chooser: random.Random, number: int, at: datetime) -> Event:
    category = chooser.choices(list(CATEGORIES), (5, 3, 2))[0]
    quantity = chooser.choices((1, 2, 3), (7, 2, 1))[0]
    customer = chooser.randrange(CUSTOMERS)
    order = {
        "id": number,
        "customer": customer,
        "product": f"{category}-{chooser.randrange(3)}",
        "quantity": quantity,
        "cents": quantity * CATEGORIES[category],
        "at": at.isoformat(),
    }
    return _event("orders", str(customer), order)


def _event(topic: str, key: str, value: dict[str, Any]) -> Event:
    return Event(topic=topic, key=key.encode(), value=json.dumps(value, separators=(",", ":")).encode())
