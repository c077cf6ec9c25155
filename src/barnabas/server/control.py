"""The controller of a broker, and what the broker does once it has its roles."""

from __future__ import annotations

from barnabas.broker.parts import ReplicaParts
from barnabas.broker.upkeep.control_requests import ControlRequests, LocalLinks
from barnabas.broker.upkeep.log_adoption import (
    NOTHING_ADOPTED,
    Adopted,
    adopt_unknown_logs,
    hold_strays,
    report_problems,
)
from barnabas.broker.waiting.background import Background
from barnabas.coordination.controller.controller import Controller
from barnabas.server.cluster import Cluster
from barnabas.server.environment import Environment


def build_controller(
    cluster: Cluster, parts: ReplicaParts, environment: Environment, background: Background
) -> Controller:
    requests = ControlRequests(
        cluster.registration,
        cluster.updates,
        parts.replicas,
        parts.log_manager,
        parts.log_dir_mover,
        background,
    )
    return Controller(
        cluster.session,
        cluster.broker_id,
        cluster.metadata.image.cluster_id,
        cluster.settings,
        LocalLinks(cluster.broker_id, requests),
        environment.clock,
        environment.rng,
    )


async def begin_control(controller: Controller, cluster: Cluster, parts: ReplicaParts) -> Adopted:
    """Takes part in the election. Returns when the partitions of this broker have their roles and logs."""
    await controller.start(clean_stop=cluster.stopped_cleanly)
    cluster.session.on_renewed(controller.rejoin)
    metadata, replicas, manager = cluster.metadata, parts.replicas, parts.log_manager
    await replicas.opened(metadata.image.topics)
    adopted = NOTHING_ADOPTED
    if controller.is_active and not cluster.settings.current.uses_zookeeper:
        # Only the owner of its store knows that a directory belongs to no topic.
        adopted = await adopt_unknown_logs(controller, metadata.image, manager)
        await replicas.opened(adopted.topics)
        hold_strays(metadata.image, manager)
        report_problems(metadata.image, cluster.broker_id)
    await parts.log_dir_mover.resume()
    return adopted
