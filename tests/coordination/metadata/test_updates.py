"""What a broker makes of UpdateMetadata, and when it reads the settings of topics."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from barnabas.clock import ManualClock
from barnabas.config.listeners import Endpoint, SecurityProtocol
from barnabas.coordination.controller.messages import (
    Changed,
    MetadataUpdate,
    leader_and_isr,
    update_metadata,
    whole,
)
from barnabas.coordination.metadata.cache import MetadataCache
from barnabas.coordination.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from barnabas.coordination.metadata.updates import MetadataUpdates, updated
from barnabas.coordination.store.contract import ensure_path
from barnabas.coordination.store.embedded import EmbeddedStore
from barnabas.model import BrokerId, LeaderEpoch
from barnabas.value import replace

A, B = BrokerId(1), BrokerId(2)


def broker(broker_id: BrokerId) -> BrokerImage:
    endpoint = Endpoint(
        listener_name="OUT", host="h", port=9000 + broker_id, security_protocol=SecurityProtocol.SASL_SSL
    )
    return BrokerImage(id=broker_id, epoch=40 + broker_id, rack="r", endpoints=(endpoint,))


def topic(name: str, *leaders: BrokerId, topic_id: bytes | None = None) -> TopicImage:
    return TopicImage(
        name=name,
        id=topic_id or name[:1].encode() * 16,
        partitions=tuple(
            PartitionImage(
                leader=leader,
                leader_epoch=LeaderEpoch(3),
                replicas=(A, B),
                isr=(leader,),
                partition_epoch=7,
            )
            for leader in leaders
        ),
    )


def cluster(*topics: TopicImage, brokers: Sequence[BrokerId] = (A, B)) -> MetadataImage:
    image = MetadataImage(
        cluster_id="c",
        controller_id=A,
        controller_epoch=5,
        brokers={each: broker(each) for each in brokers},
    )
    return image.with_topics(topics)


EMPTY = MetadataImage(cluster_id="c", controller_id=BrokerId(-1), topic_configs={"a": {"x": "1"}})


def test_an_update_carries_the_whole_image() -> None:
    image = cluster(topic("a", A, B), topic("b", B))
    found = updated(EMPTY, update_metadata(image, broker(B), whole(image.topics.values())), B)
    assert (found.topics, found.topic_names) == (image.topics, image.topic_names)
    assert (found.controller_id, found.controller_epoch) == (1, 5)
    assert found.brokers[B] == broker(B)
    # The request does not say which epochs the other brokers have.
    assert found.brokers[A].endpoints == broker(A).endpoints
    # Settings do not come with it.
    assert found.topic_configs == {"a": {"x": "1"}}


def test_partitions_are_merged_and_live_brokers_replaced() -> None:
    before = cluster(topic("a", A, A), topic("b", A))
    after = cluster(topic("a", A, B, A), brokers=[B])
    request = update_metadata(after, broker(B), [Changed(after.topics["a"], [1, 2])])
    found = updated(before, request, B)
    assert [each.leader for each in found.topics["a"].partitions] == [A, B, A]
    assert found.topics["b"] is before.topics["b"]
    assert list(found.brokers) == [B]


def test_failed_replicas_are_those_that_are_offline_on_live_brokers() -> None:
    """The others are not offline any more when their broker is back."""
    image = cluster(topic("a", A, A), brokers=[B])
    offline = MetadataUpdate(image, whole(image.topics.values()), is_offline=lambda *_: True)
    found = updated(EMPTY, offline.to(broker(B)), B)
    assert [each.failed_replicas for each in found.topics["a"].partitions] == [(B,), (B,)]
    well = update_metadata(image, broker(B), [Changed(image.topics["a"], [1])])
    found = updated(found, well, B)
    assert [each.failed_replicas for each in found.topics["a"].partitions] == [(B,), ()]


def test_a_late_request_changes_nothing_that_is_newer() -> None:
    """It was sent before the present image, and arrives after it over an older connection."""
    now = cluster(topic("a", A, A), topic("b", A))
    [first, second] = topic("a", B, B).partitions
    for older in (
        replace(first, partition_epoch=6),
        replace(first, leader_epoch=LeaderEpoch(2), partition_epoch=9),
    ):
        sent = replace(topic("a", B, B), partitions=(older, replace(second, partition_epoch=8)))
        late = cluster(sent, brokers=[B])
        found = updated(now, update_metadata(late, broker(B), whole(late.topics.values())), B)
        # The second partition of the request is newer than the known one.
        assert [each.leader for each in found.topics["a"].partitions] == [A, B]
        assert found.brokers is now.brokers
        # The states of a new controller come from the store, and its brokers are those of now.
        late = replace(late, controller_epoch=6)
        found = updated(now, update_metadata(late, broker(B), whole(late.topics.values())), B)
        assert list(found.brokers) == [B]


def test_a_topic_without_an_id_may_begin_again() -> None:
    """Below protocol level 2.8 a topic that is created again cannot be told from the one before."""
    now = cluster(topic("a", A, topic_id=bytes(16)))
    again = topic("a", B, topic_id=bytes(16))
    again = replace(again, partitions=(replace(again.partitions[0], partition_epoch=0),))
    request = update_metadata(cluster(again), broker(B), whole([again]))
    assert updated(now, request, B).topics["a"].partitions[0].leader == B


def test_brokers_that_are_the_same_stay_the_same() -> None:
    image = updated(cluster(), update_metadata(cluster(), broker(A)), A)
    assert updated(image, update_metadata(cluster(), broker(A)), A).brokers is image.brokers


def test_deleted_topics_go_with_their_settings() -> None:
    before = cluster(topic("a", A, A), topic("b", A)).with_topic_configs({"a": {"x": "1"}, "b": {"y": "2"}})
    request = update_metadata(cluster(), broker(B), deleted=[topic("a", A, A), topic("never", A)])
    found = updated(before, request, B)
    assert (list(found.topics), found.topic_configs) == (["b"], {"b": {"y": "2"}})
    assert list(found.topic_names.values()) == ["b"]


def test_a_topic_with_another_id_replaces_the_one_before() -> None:
    before = cluster(topic("a", A, A, A))
    other_id = b"another topic id"
    after = cluster(topic("a", B, topic_id=other_id))
    found = updated(before, update_metadata(after, broker(B), whole(after.topics.values())), B)
    assert found.topics == after.topics
    assert found.topic_names == {other_id: "a"}


def test_a_topic_gets_an_id_when_the_protocol_level_is_raised() -> None:
    before = cluster(topic("a", A, A, A, topic_id=bytes(16)))
    assert before.topic_names == {}
    after = cluster(topic("a", B, A, A))
    only_first = [Changed(after.topics["a"], [0])]
    found = updated(before, update_metadata(after, broker(B), only_first), B)
    assert found.topics == after.topics
    assert found.topic_names == after.topic_names


def test_settings_of_a_topic_are_read_once_before_its_first_role(tmp_path: Path) -> None:
    async def main() -> None:
        store = await EmbeddedStore.open([str(tmp_path)], clock=ManualClock())
        session = await store.connect()
        await ensure_path(session, "/config/topics")
        await session.create("/config/topics/a", b'{"version":1,"config":{"retention.ms":"5"}}')
        cache = MetadataCache(EMPTY)
        updates = MetadataUpdates(session, cache, B, ["known"])
        image = cluster(topic("a", A), topic("plain", A), topic("known", A))
        request = leader_and_isr(image, broker(B), whole(image.topics.values()))
        assert request is not None
        await updates.learn_topics(request)
        # What a topic of the same name has left counts no more.
        assert cache.image.topic_configs == {"a": {"retention.ms": "5"}}
        assert [updates.knows(name) for name in ("a", "plain", "known", "other")] == [True, True, True, False]
        await session.set("/config/topics/a", b"")
        await updates.learn_topics(request)
        assert cache.published == 1
        updates.update(update_metadata(image, broker(B), whole(image.topics.values())))
        updates.update(update_metadata(image, broker(B), deleted=[image.topics["a"]]))
        assert not updates.knows("a")
        await updates.learn_topics(request)
        assert cache.image.topic_config("a") == {}
        await store.close()

    asyncio.run(main())


def test_a_topic_that_was_created_again_during_the_start_has_its_own_settings(tmp_path: Path) -> None:
    """Its name is known, and settings of the one before were read. Nobody has said that this one is gone."""

    async def main() -> None:
        store = await EmbeddedStore.open([str(tmp_path)], clock=ManualClock())
        session = await store.connect()
        await ensure_path(session, "/config/topics")
        await session.create("/config/topics/a", b'{"version":1,"config":{"x":"2"}}')
        image = cluster(topic("a", A))
        request = leader_and_isr(image, broker(B), whole(image.topics.values()))
        assert request is not None
        for is_shared, expected in ((True, "2"), (False, "1")):
            cache = MetadataCache(EMPTY)
            updates = MetadataUpdates(session, cache, B, ["a"], is_shared=is_shared)
            await updates.learn_topics(request)
            assert cache.image.topic_config("a") == {"x": expected}
            assert cache.published == (1 if is_shared else 0)
        # Later roles in another one come before its metadata, and before the news that the first one is gone.
        cache = MetadataCache(EMPTY)
        updates = MetadataUpdates(session, cache, B, ["a"])
        updates.update(update_metadata(image, broker(B), whole(image.topics.values())))
        again = cluster(topic("a", A, topic_id=bytes(15) + b"1"))
        request = leader_and_isr(again, broker(B), whole(again.topics.values()))
        assert request is not None
        await updates.learn_topics(request)
        updates.update(update_metadata(again, broker(B), whole(again.topics.values())))
        assert cache.image.topic_config("a") == {"x": "2"}
        await store.close()

    asyncio.run(main())


def test_settings_of_topics_of_other_brokers_are_read_when_they_are_needed(tmp_path: Path) -> None:
    async def main() -> None:
        store = await EmbeddedStore.open([str(tmp_path)], clock=ManualClock())
        session = await store.connect()
        await ensure_path(session, "/config/topics")
        await session.create("/config/topics/a", b'{"version":1,"config":{"x":"2"}}')
        cache = MetadataCache(replace(EMPTY, topic_configs={}))
        updates = MetadataUpdates(session, cache, B)
        image = cluster(topic("a", A))
        updates.update(update_metadata(image, broker(B), whole(image.topics.values())))
        assert cache.image.topic_config("a") == {}
        await updates.learn_settings(["a", "missing"])
        assert cache.image.topic_config("a") == {"x": "2"}
        assert [updates.knows(name) for name in ("a", "missing")] == [True, False]
        updates.update(update_metadata(image, broker(B), deleted=[image.topics["a"]]))
        # A topic that is deleted while its settings are read is not known.
        updates.update(update_metadata(image, broker(B), whole(image.topics.values())))
        learning = asyncio.create_task(updates.learn_settings(["a"]))
        await asyncio.sleep(0)
        updates.update(update_metadata(image, broker(B), deleted=[image.topics["a"]]))
        await learning
        assert not updates.knows("a")
        assert cache.image.topic_config("a") == {}
        await store.close()

    asyncio.run(main())
