"""The controller of a broker, and what the broker does once it has its roles."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

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
from barnabas.coordination.controller.links import BrokerLinks
from barnabas.coordination.metadata.cache import Stage
from barnabas.metrics.registry import Registry
from barnabas.server.cluster import Cluster
from barnabas.server.environment import Environment
from barnabas.server.peers import PeerParts

if TYPE_CHECKING:
    from barnabas.broker.upkeep.feature_updates import FeatureUpdates


class Control(NamedTuple):
    controller: Controller
    # What the controller asks of this broker.
    requests: ControlRequests


def build_control(
    cluster: Cluster,
    parts: ReplicaParts,
    environment: Environment,
    background: Background,
    peers: PeerParts | None,
    metrics: Registry,
) -> Control:
    requests = ControlRequests(
        cluster.registration,
        cluster.updates,
        parts.replicas,
        parts.log_manager,
        parts.log_dir_mover,
        background,
    )
    here = LocalLinks(cluster.broker_id, requests)
    controller = Controller(
        cluster.session,
        cluster.broker_id,
        cluster.metadata.image.cluster_id,
        cluster.settings,
        here if peers is None else _channels(cluster, here, peers, metrics),
        environment.clock,
        environment.rng,
    )
    if peers is not None:
        cluster.metadata.subscribe(Stage.CLIENTS, controller.follow_settings)
    return Control(controller, requests)


def _channels(cluster: Cluster, here: LocalLinks, peers: PeerParts, metrics: Registry) -> BrokerLinks:
    # A single node does not pay for these when it starts.
    from barnabas.broker.metrics.controller_metrics import register_session
    from barnabas.broker.upkeep.control_channels import ControlChannels
    from barnabas.broker.upkeep.control_versions import old_form

    register_session(metrics, cluster.session)

    here.old_form = old_form(peers.peers.level, lambda topic: cluster.metadata.image.topic_id(topic))
    config = cluster.settings.current
    channels = ControlChannels(
        cluster.broker_id,
        here,
        peers.peers,
        listener=config.inter_broker_endpoint.listener_name,
        timeout_ms=config.controller_socket_timeout_ms,
    )
    metrics.gauge(
        "kafka_controller_controllerchannelmanager_totalqueuesize",
        "Requests of the controller that wait for other brokers.",
        lambda: sum(channels.queue_sizes.values()),
    )
    metrics.gauge(
        "kafka_controller_controllerchannelmanager_queuesize",
        "Requests of the controller that wait for a broker.",
        lambda: [({"broker_id": str(each)}, size) for each, size in channels.queue_sizes.items()],
    )
    return channels


def feature_updates(
    cluster: Cluster, controller: Controller, peers: PeerParts | None
) -> FeatureUpdates | None:
    """Only a cluster changes its features."""
    if peers is None or cluster.features is None:
        return None
    from barnabas.broker.upkeep.feature_updates import FeatureUpdates

    return FeatureUpdates(controller, cluster.features, cluster.metadata, peers.peers)


async def begin_control(controller: Controller, cluster: Cluster, parts: ReplicaParts) -> Adopted:
    """Takes part in the election. Returns when the partitions of this broker have their roles and logs."""
    await controller.start(clean_stop=cluster.stopped_cleanly)
    if cluster.features is not None:
        # This broker may have made them.
        await cluster.features.read()
    cluster.session.on_renewed(controller.rejoin)
    metadata, replicas, manager = cluster.metadata, parts.replicas, parts.log_manager
    await replicas.opened(metadata.image.topics)
    adopted = NOTHING_ADOPTED
    if controller.is_active and not cluster.settings.current.is_in_cluster:
        # Only the owner of its store knows that a directory belongs to no topic.
        adopted = await adopt_unknown_logs(controller, metadata.image, manager)
        await replicas.opened(adopted.topics)
        hold_strays(metadata.image, manager)
        report_problems(metadata.image, cluster.broker_id)
    await parts.log_dir_mover.resume()
    return adopted
