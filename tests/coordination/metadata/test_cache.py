"""The metadata cache: subscribers run stage by stage, and one that fails stops nobody."""

from __future__ import annotations

import pytest

from barnabas.coordination.metadata.cache import MetadataCache, Stage
from barnabas.coordination.metadata.image import MetadataImage
from barnabas.model import BrokerId


def image(cluster_id: str = "c") -> MetadataImage:
    return MetadataImage(cluster_id=cluster_id, controller_id=BrokerId(0))


def test_stages_run_in_their_order_whoever_subscribes_first() -> None:
    cache = MetadataCache(image())
    called: list[str] = []
    for name, stage in (
        ("telemetry", Stage.CLIENTS),
        ("groups", Stage.COORDINATORS),
        ("replicas", Stage.REPLICAS),
        ("transactions", Stage.COORDINATORS),
        ("quotas", Stage.QUOTAS),
        ("settings", Stage.SETTINGS),
    ):
        cache.subscribe(stage, lambda before, after, name=name: called.append(name))  # type: ignore[misc]
    cache.publish(image("next"))
    assert called == ["replicas", "settings", "quotas", "groups", "transactions", "telemetry"]


def test_a_subscriber_sees_both_images_and_the_cache_has_the_new_one() -> None:
    first, second = image(), image("next")
    cache = MetadataCache(first)
    seen = []
    cache.subscribe(Stage.CLIENTS, lambda before, after: seen.append((before, after, cache.image)))
    cache.publish(second)
    assert seen == [(first, second, second)]
    assert cache.published == 1


def test_a_subscriber_that_fails_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    def fail(before: MetadataImage, after: MetadataImage) -> None:
        raise RuntimeError("no")

    cache = MetadataCache(image())
    seen = []
    cache.subscribe(Stage.REPLICAS, fail)
    cache.subscribe(Stage.REPLICAS, lambda before, after: seen.append(after))
    cache.publish(image())
    assert seen == [cache.image]
    assert "A subscriber to metadata failed in stage REPLICAS" in caplog.text
