"""Changes of finalized features, at the controller of a cluster.

The controller's machine checks what it knows: the features of all brokers that are alive. Before group.version is
lowered, all brokers are asked for groups of the consumer protocol that have members: nobody would answer these any
more. Groups without members keep their offsets, and members of the classic protocol can take them over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from barnabas.coordination.controller.controller import Controller
from barnabas.coordination.metadata.cache import MetadataCache
from barnabas.coordination.metadata.feature_following import FeatureFollower
from barnabas.coordination.metadata.features import GROUP_VERSION
from barnabas.coordination.metadata.store_errors import as_kafka_error
from barnabas.coordination.planning.feature_levels import FeatureUpdate, UpgradeType, invalid, refusal
from barnabas.coordination.store.contract import StoreError
from barnabas.errors import NONE, FeatureUpdateFailed, KafkaError, NotController, error_for_code
from barnabas.groups.settings import CONSUMER
from barnabas.model import BrokerId
from barnabas.peers.peers import Peers
from barnabas.protocol.messages.list_groups_request import ListGroupsRequest
from barnabas.protocol.messages.list_groups_response import ListGroupsResponse

FEATURES: Final = "features"
# Group ids in a refusal; more are counted.
_NAMED_MAX: Final = 5
_WITHOUT_MEMBERS: Final = ("Empty", "Dead")


class FeatureUpdates:
    def __init__(
        self, controller: Controller, follower: FeatureFollower, metadata: MetadataCache, peers: Peers
    ) -> None:
        self._controller = controller
        self._follower = follower
        self._metadata = metadata
        self._peers = peers

    async def update(self, updates: Sequence[FeatureUpdate], *, validate_only: bool, timeout_ms: int) -> None:
        """Changes levels, all or none. Returns when this broker has them. Raises KafkaError."""
        if not self._controller.is_active:
            raise NotController("This is not the correct controller for this cluster.")
        for update in updates:
            if update.feature == GROUP_VERSION and self._loses_groups(update):
                await self._controller.update_features(updates, validate_only=True)
                await self._check_groups(update, timeout_ms)
        await self._controller.update_features(updates, validate_only=validate_only)
        try:
            await self._follower.read()
        except StoreError as error:
            raise as_kafka_error(error) from error

    def _loses_groups(self, update: FeatureUpdate) -> bool:
        current = self._metadata.image.features.level(GROUP_VERSION)
        return update.level < current and update.upgrade_type is UpgradeType.SAFE_DOWNGRADE

    async def _check_groups(self, update: FeatureUpdate, timeout_ms: int) -> None:
        brokers = list(self._metadata.image.brokers)
        found = await asyncio.gather(*(self._groups_of(each, timeout_ms) for each in brokers))
        groups = sorted(group for each in found for group in each)
        if groups:
            others = len(groups) - _NAMED_MAX
            names = ", ".join(groups[:_NAMED_MAX]) + (f" and {others} more" if others > 0 else "")
            raise refusal(
                f"{invalid(update)} Groups of the consumer protocol have members: {names}. Stop these, or restart them"
                " with group.protocol=classic, first."
            )

    async def _groups_of(self, broker_id: BrokerId, timeout_ms: int) -> list[str]:
        """The groups of the consumer protocol that have members, of one coordinator."""
        try:
            link = self._peers.link(broker_id, FEATURES)
            answer: ListGroupsResponse = await link.ask(
                "ListGroups", ListGroupsRequest(types_filter=[CONSUMER]), timeout_ms=timeout_ms
            )
            if answer.error_code != NONE:
                raise error_for_code(answer.error_code)
        except KafkaError as error:
            raise FeatureUpdateFailed(
                f"Broker {broker_id} does not tell which groups of the consumer protocol it has: {error.name}: {error}"
            ) from error
        return [each.group_id for each in answer.groups if each.group_state not in _WITHOUT_MEMBERS]
