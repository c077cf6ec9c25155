"""The controller's part in the features of a cluster: the node `/feature`, and brokers that do not support it.

A new cluster has no node until its first topic is created, because brokers of Kafka 3.9, which support no features, may
still be starting. If all brokers that are registered then support the features of this broker, the levels become the
highest ones. The first broker that does not support them settles the matter before: no feature is in use then. Where
the node exists, or the cluster has topics already, or the protocol level is set, nothing is raised. UpdateFeatures
changes levels later.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from barnabas.coordination.controller.events import StoreRefused, Write
from barnabas.coordination.controller.snapshot import Snapshot
from barnabas.coordination.controller.state import (
    ATTEMPTS_MAX,
    Change,
    ControllerState,
    read_nodes,
    refusal,
)
from barnabas.coordination.metadata.features import (
    LATEST,
    SUPPORTED,
    FinalizedFeatures,
    unsupported_features,
)
from barnabas.coordination.metadata.image import BrokerImage
from barnabas.coordination.metadata.node_reader import MalformedNode
from barnabas.coordination.metadata.tree import (
    CONTROLLER_EPOCH,
    FEATURE,
    FeatureNode,
    decode_features,
    encode_features,
)
from barnabas.coordination.planning.feature_levels import FeatureUpdate, Supporter, updated_levels
from barnabas.coordination.store.contract import (
    BadVersion,
    Check,
    Create,
    MultiFailed,
    NodeExists,
    NoNode,
    SetData,
    Stat,
)
from barnabas.errors import FeatureUpdateFailed, InvalidRequest
from barnabas.model import BrokerId
from barnabas.peers.versions import FEATURES, FEATURES_WITHOUT_MIN, ProtocolLevel

log = logging.getLogger(__name__)

_LEVEL_SETTING: Final = "inter.broker.protocol.version"
# The node with its version; None if it does not exist.
_Found = tuple[FeatureNode, int] | None


def begin_features(state: ControllerState, snapshot: Snapshot) -> Change[None]:
    """Makes the node, or enables it, as far as that is needed. In a new cluster it may wait, see `settle_features`."""
    try:
        found = _decoded(snapshot.feature)
    except MalformedNode as error:
        # Levels that are in use may be in it: nothing is written over it.
        log.error("The finalized features are not known: %s. Mend the node", error)
        return
    if found is None and _is_new(state, snapshot):
        state.are_features_open = True
        yield from settle_features(state, snapshot.brokers, is_first_topic=False)
    else:
        yield from _begin(state, found, {})


def settle_features(
    state: ControllerState, brokers: Mapping[BrokerId, BrokerImage], *, is_first_topic: bool
) -> Change[None]:
    """Makes the node of a new cluster, if it is time: at the first topic, or with a broker that knows no features."""
    if not state.are_features_open:
        return
    others = [each.id for each in brokers.values() if unsupported_features(LATEST.levels, each.features)]
    if others or is_first_topic:
        yield from _begin(state, None, {} if others else LATEST.levels)
        log.info(
            "The finalized features of the new cluster are %s%s",
            dict(state.features.levels),
            f", because of brokers {others}" if others else "",
        )


def _begin(state: ControllerState, found: _Found, levels: Mapping[str, int]) -> Change[None]:
    """`levels` are those of a node that does not exist yet."""
    level = _protocol_level(state)
    for _ in range(ATTEMPTS_MAX):
        if found is not None:
            levels = found[0].features if found[0].enabled and level >= FEATURES else {}
        if (yield from _store(state, found, _node(level, levels))):
            return
        found = yield from _read(state)
    raise FeatureUpdateFailed("the features of the cluster change again and again")


def compatible_brokers(
    state: ControllerState, brokers: Mapping[BrokerId, BrokerImage]
) -> Mapping[BrokerId, BrokerImage]:
    """Without brokers that do not support the finalized features: they get no roles."""
    compatible = {}
    for broker in brokers.values():
        missing = unsupported_features(state.features.levels, broker.features)
        if missing:
            log.warning("Ignoring broker %d, which does not support %s", broker.id, ", ".join(missing))
        else:
            compatible[broker.id] = broker
    return brokers if len(compatible) == len(brokers) else compatible


def update_features(
    state: ControllerState, updates: Sequence[FeatureUpdate], *, validate_only: bool
) -> Change[int]:
    """Changes levels, all or none. Returns the epoch of the features. Raises InvalidUpdateVersion."""
    level = _protocol_level(state)
    if level < FEATURES:
        raise InvalidRequest("Feature versioning system is disabled.")
    brokers = [Supporter(f"Broker {each.id}", each.features) for each in state.image.brokers.values()]
    supporters = [Supporter(f"Local controller {state.image.controller_id}", SUPPORTED), *brokers]
    for _ in range(ATTEMPTS_MAX):
        found = yield from _read(state)
        before = found[0].features if found is not None and found[0].enabled else {}
        after = updated_levels(before, updates, supporters)
        if validate_only or (after == before and found is not None):
            return state.features.epoch
        if (yield from _store(state, found, _node(level, after))):
            log.info("The finalized features are %s now; they were %s", after, dict(before))
            return state.features.epoch
    raise FeatureUpdateFailed("the features of the cluster change again and again")


def _protocol_level(state: ControllerState) -> ProtocolLevel:
    return ProtocolLevel.parse(state.settings.current.inter_broker_protocol_version)


def _is_new(state: ControllerState, snapshot: Snapshot) -> bool:
    """Whether nobody has used the cluster yet, or has said that brokers of Kafka are to join."""
    is_level_set = _LEVEL_SETTING in state.settings.current.static
    return not snapshot.topics and not snapshot.marked and not is_level_set


def _node(level: ProtocolLevel, levels: Mapping[str, int]) -> FeatureNode:
    return FeatureNode(
        enabled=level >= FEATURES, features=levels, version=2 if level >= FEATURES_WITHOUT_MIN else 1
    )


def _decoded(node: tuple[bytes, Stat] | None) -> _Found:
    return None if node is None else (decode_features(node[0]), node[1].version)


def _read(state: ControllerState) -> Change[_Found]:
    [node] = (yield from read_nodes(state, [FEATURE])).nodes
    return _decoded(node)


def _store(state: ControllerState, found: _Found, node: FeatureNode) -> Change[bool]:
    """Returns False if the node is not what it was."""
    version = 0
    if found is None or found[0] != node:
        data = encode_features(node)
        operation = Create(FEATURE, data) if found is None else SetData(FEATURE, data, found[1])
        result = yield Write([Check(CONTROLLER_EPOCH, state.claim.epoch_version), operation])
        if isinstance(result, StoreRefused):
            error = result.error
            cause = error.error if isinstance(error, MultiFailed) and error.index > 0 else None
            if isinstance(cause, (BadVersion, NoNode, NodeExists)):
                return False
            raise refusal(state, error)
        version = 0 if found is None else found[1] + 1
    elif found is not None:
        version = found[1]
    state.are_features_open = False
    state.features = FinalizedFeatures(version, node.features if node.enabled else {})
    return True
