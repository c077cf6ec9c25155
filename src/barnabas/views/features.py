"""The features of a cluster: the levels that it has finalized, and those that all of its brokers support."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.results import Feature


class ClusterFeature(NamedTuple):
    name: str
    # None if it is not finalized: then it has no effect.
    level: int | None
    # The levels that every broker supports. Level 0 means that it is not in use, which every broker supports.
    min_version: int
    max_version: int
    # Counts changes of the finalized features; None if there are none.
    epoch: int | None
    # Brokers that do not know the feature.
    unsupported_by: tuple[int, ...]


def cluster_features(admin: Admin) -> list[ClusterFeature]:
    by_broker = admin.describe_broker_features()
    names = sorted({name for known in by_broker.values() for name in known})
    return [_feature(name, by_broker) for name in names]


def _feature(name: str, by_broker: Mapping[int, Mapping[str, Feature]]) -> ClusterFeature:
    found = [known[name] for known in by_broker.values() if name in known]
    # A broker that has not followed the last change yet has a lower epoch.
    latest = max(found, key=lambda each: -1 if each.epoch is None else each.epoch)
    lacking = tuple(
        broker_id
        for broker_id, known in sorted(by_broker.items())
        if name not in known or known[name].max_version == 0
    )
    return ClusterFeature(
        name=name,
        level=latest.level,
        min_version=0 if lacking else max(each.min_version for each in found),
        max_version=0 if lacking else min(each.max_version for each in found),
        epoch=latest.epoch,
        unsupported_by=lacking,
    )
