"""UpdateFeatures, versions 0 to 2: raises or lowers the levels of the cluster's features.

A single node runs each feature at its highest level and stays there, so only an update to that level succeeds. In a
cluster the controller changes levels, see `coordination.controller.features`; other brokers answer NOT_CONTROLLER.
One wrong update fails all of them, in Apache Kafka's words. Version 0 has a flag for downgrades, version 1 a type of
upgrade and a dry run, version 2 no results of single features.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.cluster.features import SINGLE_NODE
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.requests.exchange import Answer, Exchange
from barnabas.coordination.planning.feature_levels import (
    FeatureUpdate,
    Supporter,
    UpgradeType,
    invalid,
    refusal,
    why_not,
)
from barnabas.errors import KafkaError, NotController
from barnabas.protocol.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from barnabas.protocol.messages.update_features_response import UpdatableFeatureResult, UpdateFeaturesResponse

if TYPE_CHECKING:
    from barnabas.broker.upkeep.feature_updates import FeatureUpdates

_FIRST_VERSION_WITH_TYPES: Final = 1
_FIRST_VERSION_WITHOUT_RESULTS: Final = 2
# Bounds of the time that other brokers have for their answers.
_TIMEOUT_MS_MIN: Final = 1_000
_TIMEOUT_MS_MAX: Final = 60_000


def handle(
    broker: Broker, exchange: Exchange[UpdateFeaturesResponse], request: UpdateFeaturesRequest
) -> Answer[UpdateFeaturesResponse]:
    updates = [_update(each, exchange.version) for each in request.feature_updates]
    if broker.features is not None:
        return exchange.answer_from(_update_cluster(broker.features, exchange.version, updates, request))
    try:
        if not broker.controller.is_active:
            raise NotController("This is not the correct controller for this cluster.")
        _check_single_node(broker, updates)
    except KafkaError as error:
        return _refused(error)
    return _done(exchange.version, updates)


HANDLER: Final = Handler(UpdateFeaturesRequest, UpdateFeaturesResponse, handle)


async def _update_cluster(
    features: FeatureUpdates, version: int, updates: Sequence[FeatureUpdate], request: UpdateFeaturesRequest
) -> UpdateFeaturesResponse:
    try:
        await features.update(
            updates,
            validate_only=request.validate_only,
            timeout_ms=min(max(request.timeout_ms, _TIMEOUT_MS_MIN), _TIMEOUT_MS_MAX),
        )
    except KafkaError as error:
        return _refused(error)
    return _done(version, updates)


def _update(key: FeatureUpdateKey, version: int) -> FeatureUpdate:
    if version >= _FIRST_VERSION_WITH_TYPES:
        upgrade_type = UpgradeType(key.upgrade_type)
    else:
        upgrade_type = UpgradeType.SAFE_DOWNGRADE if key.allow_downgrade else UpgradeType.UPGRADE
    return FeatureUpdate(key.feature, key.max_version_level, upgrade_type)


def _check_single_node(broker: Broker, updates: Sequence[FeatureUpdate]) -> None:
    supporters = [Supporter(f"Local controller {broker.image.controller_id}", SINGLE_NODE)]
    for update in updates:
        supported = SINGLE_NODE.get(update.feature)
        current = 0 if supported is None else supported.max_level
        reason = why_not(update, current, supporters)
        if reason is None and update.level < current:
            reason = (
                f"{invalid(update)} Can't downgrade the version of this feature. Barnabas runs each at its highest"
                " level."
            )
        if reason is not None:
            raise refusal(reason)


def _refused(error: KafkaError) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(error_code=error.code, error_message=str(error))


def _done(version: int, updates: Sequence[FeatureUpdate]) -> UpdateFeaturesResponse:
    names = dict.fromkeys(update.feature for update in updates)
    has_results = version < _FIRST_VERSION_WITHOUT_RESULTS
    return UpdateFeaturesResponse(
        error_message=None,
        results=[UpdatableFeatureResult(feature=name, error_message="NONE") for name in names]
        if has_results
        else [],
    )
