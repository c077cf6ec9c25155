"""UpdateFeatures, versions 0 to 2: raises or lowers the levels of the cluster's features.

Each feature runs at its highest level and stays there, so only an update to that level succeeds. Other updates
are refused in Apache Kafka's words. One wrong update fails all of them. Version 0 has a flag for downgrades, version 1
a type of upgrade and a dry run, version 2 no results of single features.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.cluster.features import FEATURES
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.requests.exchange import AnyExchange
from barnabas.errors import InvalidUpdateVersion, NotController
from barnabas.protocol.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from barnabas.protocol.messages.update_features_response import UpdatableFeatureResult, UpdateFeaturesResponse

_FIRST_VERSION_WITH_TYPES: Final = 1
_FIRST_VERSION_WITHOUT_RESULTS: Final = 2


class UpgradeType(IntEnum):
    """Codes of the protocol."""

    UNKNOWN = 0
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3

    @classmethod
    def _missing_(cls, value: object) -> UpgradeType:
        return cls.UNKNOWN


def handle(broker: Broker, exchange: AnyExchange, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    if not broker.controller.is_active:
        return UpdateFeaturesResponse(
            error_code=NotController.code,
            error_message="This is not the correct controller for this cluster.",
        )
    for update in request.feature_updates:
        reason = _why_not(broker, update, _upgrade_type(update, exchange.version))
        if reason is not None:
            return UpdateFeaturesResponse(
                error_code=InvalidUpdateVersion.code,
                error_message="The update failed for all features since the following feature had an error: "
                f"{reason}",
            )
    has_results = exchange.version < _FIRST_VERSION_WITHOUT_RESULTS
    names = dict.fromkeys(update.feature for update in request.feature_updates)
    return UpdateFeaturesResponse(
        error_message=None,
        results=[UpdatableFeatureResult(feature=name, error_message="NONE") for name in names]
        if has_results
        else [],
    )


HANDLER: Final = Handler(UpdateFeaturesRequest, UpdateFeaturesResponse, handle)


def _upgrade_type(update: FeatureUpdateKey, version: int) -> UpgradeType:
    if version >= _FIRST_VERSION_WITH_TYPES:
        return UpgradeType(update.upgrade_type)
    return UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else UpgradeType.UPGRADE


def _why_not(broker: Broker, update: FeatureUpdateKey, upgrade_type: UpgradeType) -> str | None:
    name, level = update.feature, update.max_version_level
    invalid = f"Invalid update version {level} for feature {name}."
    controller = f"Local controller {broker.image.controller_id}"
    if upgrade_type is UpgradeType.UNKNOWN:
        return f"{invalid} The controller does not support the given upgrade type."
    if level < 0:
        return f"{invalid} A feature version cannot be less than 0."
    feature = next((each for each in FEATURES if each.name == name), None)
    if feature is None:
        unknown = (
            f"Feature {name} not found." if level == 0 else f"{controller} does not support this feature."
        )
        return f"{invalid} {unknown}"
    if not feature.min_level <= level <= feature.max_level:
        return f"{invalid} {controller} only supports versions {feature.min_level}-{feature.max_level}"
    if level == feature.max_level:
        return None
    if upgrade_type is UpgradeType.UPGRADE:
        return (
            f"{invalid} Can't downgrade the version of this feature without setting the upgrade type to either safe or"
            " unsafe downgrade."
        )
    return f"{invalid} Can't downgrade the version of this feature. Barnabas runs each at its highest level."
