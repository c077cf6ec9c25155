"""Golden and live requests, mutated from a seed, against a broker that somebody else is using."""

from __future__ import annotations

import os

import pytest

from tests.clients.broker_process import BrokerProcess
from tests.hostile.assault import Assault
from tests.hostile.canary import Canary
from tests.hostile.mutations import mutated_requests
from tests.sampling import cases

MIB = 1 << 20
# What topics made by mutated requests and the logs of the canary may cost beside the broker itself.
GROWTH_MAX_BYTES = 150 * MIB


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "count"),
    [
        pytest.param(1, cases(2_000, fast=700), id="few"),
        pytest.param(2, int(os.environ.get("HOSTILE_REQUESTS", "100000")), id="many", marks=pytest.mark.slow),
    ],
)
def test_only_the_connection_of_a_bad_request_is_closed(broker: BrokerProcess, seed: int, count: int) -> None:
    before_bytes = broker.rss_bytes()
    assault = Assault(broker)
    with Canary(broker) as canary:
        assault.run(mutated_requests(seed, count))
    assert assault.sent == count
    assert assault.answered > 0
    assert assault.closed_by_broker
    assault.check_log()
    grown_bytes = broker.rss_bytes() - before_bytes
    print(
        f"{assault.answered} answered, {assault.closed_by_broker.total()} closed, {grown_bytes / MIB:.0f} MiB,"
    )
    print(f"canary: {canary.rounds} rounds, the longest {canary.longest_s:.3f} s")
    assert grown_bytes < GROWTH_MAX_BYTES
