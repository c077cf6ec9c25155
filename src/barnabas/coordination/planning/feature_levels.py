"""Whether the level of a feature may change, with the reasons in Apache Kafka's words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from barnabas.coordination.metadata.features import NOT_SUPPORTED, SupportedFeatures
from barnabas.errors import InvalidUpdateVersion


class UpgradeType(IntEnum):
    """Codes of the protocol."""

    UNKNOWN = 0
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3

    @classmethod
    def _missing_(cls, value: object) -> UpgradeType:
        return cls.UNKNOWN


class FeatureUpdate(NamedTuple):
    """Level 0 disables the feature."""

    feature: str
    level: int
    upgrade_type: UpgradeType


class Supporter(NamedTuple):
    """A broker, in words, and what it supports."""

    name: str
    features: SupportedFeatures


def updated_levels(
    levels: Mapping[str, int], updates: Iterable[FeatureUpdate], supporters: Sequence[Supporter]
) -> dict[str, int]:
    """The levels after the updates. Raises InvalidUpdateVersion if one of them is wrong: then none takes effect."""
    after = dict(levels)
    for update in updates:
        reason = why_not(update, levels.get(update.feature, 0), supporters)
        if reason is not None:
            raise refusal(reason)
        if update.level:
            after[update.feature] = update.level
        else:
            after.pop(update.feature, None)
    return after


def refusal(reason: str) -> InvalidUpdateVersion:
    return InvalidUpdateVersion(
        f"The update failed for all features since the following feature had an error: {reason}"
    )


def why_not(update: FeatureUpdate, current: int, supporters: Sequence[Supporter]) -> str | None:
    """Why the update is refused; None if it is not. All supporters have to know the level."""
    name, level, upgrade_type = update
    reason = None
    if upgrade_type is UpgradeType.UNKNOWN:
        reason = "The controller does not support the given upgrade type."
    elif level < 0:
        reason = "A feature version cannot be less than 0."
    elif level == 0 and not any(name in each.features for each in supporters):
        reason = f"Feature {name} not found."
    else:
        reasons = (_not_supported(each, name, level) for each in supporters)
        reason = next((each for each in reasons if each is not None), None)
    if reason is None and level < current and upgrade_type is UpgradeType.UPGRADE:
        reason = (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe"
            " downgrade."
        )
    elif reason is None and level > current and upgrade_type is not UpgradeType.UPGRADE:
        reason = "Can't downgrade to a newer version."
    return None if reason is None else f"{invalid(update)} {reason}"


def invalid(update: FeatureUpdate) -> str:
    return f"Invalid update version {update.level} for feature {update.feature}."


def _not_supported(supporter: Supporter, name: str, level: int) -> str | None:
    supported = supporter.features.get(name, NOT_SUPPORTED)
    if supported.min_level <= level <= supported.max_level:
        return None
    if supported.max_level == 0:
        return f"{supporter.name} does not support this feature."
    return f"{supporter.name} only supports versions {supported}"
