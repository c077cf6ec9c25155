"""The links of a broker to the other brokers of its cluster. A broker with a store of its own has none."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple

from barnabas.config.listeners import SecurityProtocol
from barnabas.coordination.metadata.cache import Stage
from barnabas.coordination.metadata.image import NO_LEADER, MetadataImage
from barnabas.model import BrokerId
from barnabas.server.cluster import Cluster
from barnabas.server.environment import Environment

if TYPE_CHECKING:
    from barnabas.broker.replication.isr_changes import ControllerLink
    from barnabas.broker.replication.offline_notices import OfflineNotices
    from barnabas.broker.upkeep.controlled_shutdown import ControlledShutdown
    from barnabas.peers.controller_channel import ControllerChannel
    from barnabas.peers.node import Node
    from barnabas.peers.peers import Peers


class PeerParts(NamedTuple):
    peers: Peers
    controller: ControllerChannel
    shutdown: ControlledShutdown
    # Who changes in-sync replicas: the controller, or the leader itself in the store, by the same setting.
    isr_changes: ControllerLink
    close_isr_changes: Callable[[], Awaitable[None]] | None
    offline_notices: OfflineNotices
    # Whether the controller hands out producer ids, by `inter.broker.protocol.version`.
    has_producer_ids: bool

    async def close(self) -> None:
        await self.offline_notices.close()
        if self.close_isr_changes is not None:
            await self.close_isr_changes()
        await self.peers.close()


def build_peers(cluster: Cluster, environment: Environment, loop: AbstractEventLoop) -> PeerParts | None:
    config = cluster.settings.current
    if not config.is_in_cluster:
        return None
    # A single node does not pay for these when it starts.
    from barnabas.broker.replication.offline_notices import OfflineNotices
    from barnabas.broker.upkeep.controlled_shutdown import ControlledShutdown
    from barnabas.peers.controller_channel import ControllerChannel
    from barnabas.peers.node import Node
    from barnabas.peers.peers import Peers
    from barnabas.peers.versions import ALLOCATE_PRODUCER_IDS, ALTER_PARTITION, ProtocolLevel

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
    security = None
    if config.inter_broker_endpoint.security_protocol is not SecurityProtocol.PLAINTEXT:
        from barnabas.broker.authentication.inter_broker import usable_inter_broker_security

        security = usable_inter_broker_security(config)
    peers = Peers(cluster.broker_id, find_node, environment.transport, loop, level, security)
    metadata.subscribe(Stage.REPLICAS, follow)
    controller = ControllerChannel(
        peers, find_controller, loop, request_timeout_ms=config.controller_socket_timeout_ms
    )
    isr_changes: ControllerLink = controller
    close_isr_changes = None
    if level < ALTER_PARTITION:
        from barnabas.broker.replication.isr_in_store import IsrInStore

        isr_changes = in_store = IsrInStore(cluster.session, cluster.broker_id)
        close_isr_changes = in_store.close
    return PeerParts(
        peers=peers,
        controller=controller,
        isr_changes=isr_changes,
        close_isr_changes=close_isr_changes,
        offline_notices=OfflineNotices(cluster.session, cluster.broker_id),
        shutdown=ControlledShutdown(
            peers, find_controller, cluster.broker_id, lambda: cluster.registration.epoch
        ),
        has_producer_ids=level >= ALLOCATE_PRODUCER_IDS,
    )
