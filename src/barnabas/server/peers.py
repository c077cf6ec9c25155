"""The links of a broker to the other brokers of its cluster. A broker with a store of its own has none."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from typing import TYPE_CHECKING, NamedTuple

from barnabas.coordination.metadata.cache import Stage
from barnabas.coordination.metadata.image import NO_LEADER, MetadataImage
from barnabas.model import BrokerId
from barnabas.server.cluster import Cluster
from barnabas.server.environment import Environment

if TYPE_CHECKING:
    from barnabas.broker.upkeep.controlled_shutdown import ControlledShutdown
    from barnabas.peers.controller_channel import ControllerChannel
    from barnabas.peers.node import Node
    from barnabas.peers.peers import Peers


class PeerParts(NamedTuple):
    peers: Peers
    controller: ControllerChannel
    shutdown: ControlledShutdown
    # Whether the controller hands out producer ids, by `inter.broker.protocol.version`.
    has_producer_ids: bool


def build_peers(cluster: Cluster, environment: Environment, loop: AbstractEventLoop) -> PeerParts | None:
    config = cluster.settings.current
    if not config.uses_zookeeper:
        return None
    # A single node does not pay for these when it starts.
    from barnabas.broker.upkeep.controlled_shutdown import ControlledShutdown
    from barnabas.peers.controller_channel import ControllerChannel
    from barnabas.peers.node import Node
    from barnabas.peers.peers import Peers
    from barnabas.peers.versions import ALLOCATE_PRODUCER_IDS, ProtocolLevel

    metadata = cluster.metadata
    listener = config.inter_broker_endpoint.listener_name

    def find_node(broker_id: BrokerId) -> Node | None:
        broker = metadata.image.brokers.get(broker_id)
        endpoint = None if broker is None else broker.endpoint(listener)
        if broker is None or endpoint is None:
            return None
        return Node(broker_id, endpoint.host, endpoint.port, broker.rack)

    def find_controller() -> BrokerId | None:
        controller_id = metadata.image.controller_id
        return None if controller_id == NO_LEADER else controller_id

    def follow(before: MetadataImage, after: MetadataImage) -> None:
        if before.brokers is not after.brokers:
            peers.check_addresses()

    level = ProtocolLevel.parse(config.inter_broker_protocol_version)
    peers = Peers(cluster.broker_id, find_node, environment.transport, loop, level)
    metadata.subscribe(Stage.REPLICAS, follow)
    return PeerParts(
        peers=peers,
        controller=ControllerChannel(
            peers, find_controller, loop, request_timeout_ms=config.controller_socket_timeout_ms
        ),
        shutdown=ControlledShutdown(
            peers, find_controller, cluster.broker_id, lambda: cluster.registration.epoch
        ),
        has_producer_ids=level >= ALLOCATE_PRODUCER_IDS,
    )
