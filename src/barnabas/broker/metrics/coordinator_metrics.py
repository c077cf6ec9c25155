"""The metrics of a broker's coordinators, under the names that Kafka's metrics have in Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from barnabas.broker.broker import Broker
from barnabas.broker.coordinators.runtime import CoordinatorRuntime
from barnabas.transactions.transaction import PREPARED, TransactionState

_STATES: Final = tuple(
    state
    for state in TransactionState
    if state not in (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE)
)
_CHANNEL: Final = "kafka_coordinator_transaction_transactionmarkerchannelmanager_"


def register_coordinators(broker: Broker) -> None:
    metrics = broker.metrics
    runtimes: tuple[tuple[str, CoordinatorRuntime[Any]], ...] = (
        ("group", broker.groups),
        ("transaction", broker.transactions),
    )
    readings: tuple[tuple[str, str, Callable[[list[float]], float]], ...] = (
        ("max", "The longest", partial(max, default=0.0)),
        ("avg", "The average", _average),
    )
    for kind, runtime in runtimes:
        for name, which, read in readings:
            metrics.gauge(
                f"kafka_server_{kind}_coordinator_metrics_partition_load_time_{name}",
                f"{which} time in ms that a partition took which was loaded in the last 30 s.",
                partial(_of_loads, runtime, read),
            )
    metrics.gauge(
        f"{_CHANNEL}unknowndestinationqueuesize",
        "Transactions that are decided and wait for a partition to take their marker.",
        lambda: _prepared(broker, has_markers_to_write=True),
    )
    metrics.gauge(
        f"{_CHANNEL}logappendretryqueuesize",
        "Transactions that are decided and marked, and whose completion is not written yet.",
        lambda: _prepared(broker, has_markers_to_write=False),
    )
    metrics.gauge(
        "barnabas_transactions",
        "Transactional ids by the state of their transaction.",
        lambda: _by_state(broker),
    )


def _average(times_ms: list[float]) -> float:
    return sum(times_ms) / len(times_ms) if times_ms else 0.0


def _of_loads(runtime: CoordinatorRuntime[Any], read: Callable[[list[float]], float]) -> float:
    return read(runtime.load_times_ms())


def _prepared(broker: Broker, *, has_markers_to_write: bool) -> int:
    return sum(
        entry.transaction.state in PREPARED and bool(entry.unmarked) is has_markers_to_write
        for shell in broker.transactions
        for entry in shell.coordinator
    )


def _by_state(broker: Broker) -> list[tuple[dict[str, str], float]]:
    counts = Counter(entry.transaction.state for shell in broker.transactions for entry in shell.coordinator)
    return [({"state": state.label}, counts[state]) for state in _STATES]
