"""The metrics of a broker's groups, under the names that Kafka's metrics have in Prometheus."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Final

from barnabas.broker.coordinators.group_runtime import GroupRuntime
from barnabas.groups.settings import CLASSIC, CONSUMER
from barnabas.groups.states import ConsumerGroupState, GroupState
from barnabas.metrics.registry import Registry

_COORDINATOR: Final = "kafka_server_group_coordinator_metrics"
_MANAGER: Final = "kafka_coordinator_group_groupmetadatamanager"
_TOTALS: Final = (
    ("offset_commits", "offset_commit", "Offsets that were committed."),
    ("offset_expirations", "offset_expiration", "Offsets that have expired."),
    ("offset_deletions", "offset_deletion", "Offsets that were deleted on request."),
    ("classic_rebalances", "group_completed_rebalance", "Rebalances of classic groups that came to an end."),
    ("consumer_rebalances", "consumer_group_rebalance", "Rebalances of consumer groups."),
)


def register_group_metrics(metrics: Registry, groups: GroupRuntime) -> None:
    for attribute, name, help_text in _TOTALS:
        metrics.total(f"{_COORDINATOR}_{name}_total", help_text, partial(getattr, groups.counts, attribute))
    metrics.gauge(
        f"{_COORDINATOR}_group_count",
        "Groups that this broker coordinates, by protocol.",
        lambda: [
            ({"protocol": protocol}, sum(_counts(groups)[protocol].values()))
            for protocol in (CLASSIC, CONSUMER)
        ],
    )
    metrics.gauge(
        f"{_COORDINATOR}_consumer_group_count",
        "Consumer groups that this broker coordinates, by state.",
        lambda: [
            ({"state": state.value.lower()}, _counts(groups)[CONSUMER][state.value])
            for state in ConsumerGroupState
        ],
    )
    metrics.gauge(
        f"{_MANAGER}_numoffsets",
        "Offsets that groups have committed.",
        lambda: sum(shell.coordinator.offset_count for shell in groups),
    )
    metrics.gauge(
        f"{_MANAGER}_numgroups",
        "Classic groups that this broker coordinates.",
        lambda: sum(_counts(groups)[CLASSIC].values()),
    )
    for state in GroupState:
        metrics.gauge(
            f"{_MANAGER}_numgroups{state.value.lower()}",
            f"Classic groups in state {state.value}.",
            partial(_count_classic, groups, state.value),
        )


def _count_classic(groups: GroupRuntime, state: str) -> int:
    return _counts(groups)[CLASSIC][state]


def _counts(groups: GroupRuntime) -> dict[str, Counter[str]]:
    counts: dict[str, Counter[str]] = {CLASSIC: Counter(), CONSUMER: Counter()}
    for shell in groups:
        for protocol, state, count in shell.coordinator.group_counts():
            counts[protocol][state] += count
    return counts
