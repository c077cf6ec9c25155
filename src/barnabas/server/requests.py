"""The state of requests: quotas, fetch sessions, the worker process, client metrics."""

from __future__ import annotations

from functools import partial

from barnabas.broker.parts import ClientParts
from barnabas.broker.quotas.quotas import Quotas
from barnabas.broker.requests.conversions import Conversions
from barnabas.broker.requests.fetch_sessions import FetchSessions
from barnabas.broker.telemetry.client_metrics import ClientMetrics
from barnabas.broker.waiting.scheduling import Scheduling
from barnabas.metrics.registry import Registry
from barnabas.server.cluster import Cluster
from barnabas.server.environment import Environment


def start_client_parts(
    cluster: Cluster,
    quotas: Quotas,
    metrics: Registry,
    environment: Environment,
    scheduling: Scheduling,
) -> ClientParts:
    client_metrics = ClientMetrics(
        cluster.metadata, cluster.settings, scheduling.clock, environment.rng, metrics
    )
    client_metrics.begin()
    new_worker = partial(environment.new_worker, scheduling.loop, scheduling.background.executor)
    return ClientParts(
        quotas=quotas,
        fetch_sessions=FetchSessions(
            max_sessions=cluster.settings.current.max_incremental_fetch_session_cache_slots,
            rng=environment.rng,
        ),
        conversions=Conversions(scheduling.clock, scheduling.tasks, new_worker),
        client_metrics=client_metrics,
    )
