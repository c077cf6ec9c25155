"""The controller and the features of its cluster: who finalizes them, who may change them, and who is ignored."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from barnabas.config.broker_config import BrokerConfig
from barnabas.config.live_settings import LiveSettings
from barnabas.coordination.controller import features
from barnabas.coordination.controller.events import (
    Asked,
    BrokersChanged,
    Connect,
    CreateTopics,
    Effect,
    Event,
    NodesRead,
    ReadNodes,
    ReadTopics,
    Reply,
    Resign,
    Stored,
    StoredAll,
    StoreRefused,
    TakeOver,
    TopicsListed,
    TopicsRead,
    Write,
    WriteAll,
)
from barnabas.coordination.controller.machine import ControllerMachine
from barnabas.coordination.controller.snapshot import Snapshot, StoredTopic
from barnabas.coordination.controller.state import Claim, ControllerState
from barnabas.coordination.metadata.features import (
    NO_FEATURES,
    SUPPORTED,
    FinalizedFeatures,
    LevelRange,
    SupportedFeatures,
)
from barnabas.coordination.metadata.image import BrokerImage, MetadataImage
from barnabas.coordination.metadata.tree import FEATURE, FeatureNode, decode_features, encode_features
from barnabas.coordination.planning.feature_levels import FeatureUpdate, UpgradeType
from barnabas.coordination.planning.topic_creation import NewTopic
from barnabas.coordination.store.contract import (
    BadVersion,
    Check,
    Create,
    MultiFailed,
    NodeExists,
    SetData,
    Stat,
    StoreError,
)
from barnabas.errors import InvalidRequest, InvalidUpdateVersion, KafkaError, NotController
from barnabas.model import BrokerId

EPOCH, EPOCH_VERSION = 7, 17
CHECK = Check("/controller_epoch", EPOCH_VERSION)
A, B = BrokerId(1), BrokerId(2)
LATEST = {"group.version": 1, "transaction.version": 2}
UPGRADE, SAFE, UNSAFE = UpgradeType.UPGRADE, UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE
NOTHING = b'{"features":{},"version":2,"status":1}'
TOPIC = StoredTopic(topic_id=bytes(16), replicas=[], has_partitions_node=True, partition_nodes=(), states={})


def broker(broker_id: BrokerId, supported: SupportedFeatures = SUPPORTED) -> BrokerImage:
    return BrokerImage(id=broker_id, epoch=100 + broker_id, features=supported)


OURS = {A: broker(A), B: broker(B)}
WITH_KAFKA = {A: broker(A), B: broker(B, {})}


def node(
    version: int, levels: Mapping[str, int] | None = None, *, enabled: bool = True, format_version: int = 2
) -> tuple[bytes, Stat]:
    stat = Stat(
        czxid=1,
        mzxid=1,
        pzxid=1,
        ctime_ms=0,
        mtime_ms=0,
        version=version,
        cversion=0,
        aversion=0,
        ephemeral_owner=0,
        data_length=0,
        num_children=0,
    )
    return encode_features(FeatureNode(enabled=enabled, features=levels or {}, version=format_version)), stat


class Running:
    """A machine whose writes succeed, unless the test has errors for them, and whose node the test gives."""

    def __init__(self, feature: tuple[bytes, Stat] | None = None, level: str | None = None) -> None:
        settings = {"zookeeper.connect": "127.0.0.1:1", "auto.leader.rebalance.enable": "false"}
        if level is not None:
            settings["inter.broker.protocol.version"] = level
        config = BrokerConfig(settings)
        image = MetadataImage(cluster_id="c", controller_id=A, controller_epoch=EPOCH)
        self.state = ControllerState(Claim(EPOCH, EPOCH_VERSION), LiveSettings(config), Random(1), image)
        self.machine = ControllerMachine(self.state)
        self.feature = feature
        # What becomes of the next writes; none is left: they are stored.
        self.errors: list[StoreError] = []
        self.effects: list[Effect] = []
        self.stored: dict[str, StoredTopic] = {}

    def handle(self, event: Event) -> Any:
        """The reply, if there is one."""
        effects = self.machine.handle(event)
        while effects:
            self.effects += effects
            last, effects = effects[-1], []
            match last:
                case Write():
                    refused = StoreRefused(self.errors.pop(0)) if self.errors else Stored()
                    effects = self.machine.handle(refused)
                case WriteAll(transactions):
                    effects = self.machine.handle(StoredAll([None] * len(transactions)))
                case ReadNodes(paths):
                    assert paths == [FEATURE]
                    effects = self.machine.handle(NodesRead([self.feature]))
                case ReadTopics(names):
                    effects = self.machine.handle(TopicsRead({name: self.stored[name] for name in names}))
        replies = [each.outcome for each in self.effects if isinstance(each, Reply)]
        return replies[-1] if replies else None

    def take_over(self, brokers: dict[BrokerId, BrokerImage], **stored: StoredTopic) -> None:
        snapshot = Snapshot(brokers=brokers, topics=stored, marked=(), configured=(), feature=self.feature)
        self.handle(Asked(1, TakeOver(snapshot)))

    def create_topic(self, name: str) -> KafkaError | None:
        """The error, if there is one."""
        new = NewTopic(name, 1, 1)
        [planned] = self.handle(Asked(3, CreateTopics([new])))
        return planned if isinstance(planned, KafkaError) else None

    def update(self, *updates: FeatureUpdate, validate_only: bool = False) -> Any:
        self.effects.clear()
        return self.handle(
            Asked(
                2, lambda state: features.update_features(state, list(updates), validate_only=validate_only)
            )
        )

    @property
    def written(self) -> list[Create | SetData]:
        """What was written to the node."""
        found = []
        for each in self.effects:
            if isinstance(each, Write):
                assert each.operations[0] == CHECK
                found += [
                    operation
                    for operation in each.operations[1:]
                    if isinstance(operation, (Create, SetData)) and operation.path == FEATURE
                ]
        return found

    @property
    def connected(self) -> list[BrokerId]:
        return [list(each.brokers) for each in self.effects if isinstance(each, Connect)][-1]


def to(feature: str, level: int, kind: UpgradeType = UPGRADE) -> FeatureUpdate:
    return FeatureUpdate(feature, level, kind)


def test_a_new_cluster_finalizes_features_before_its_first_topic() -> None:
    running = Running()
    running.take_over(OURS)
    assert running.written == []
    assert running.state.features == NO_FEATURES
    assert running.connected == [A, B]
    running.effects.clear()
    assert running.create_topic("t") is None
    [made] = running.written
    assert isinstance(made, Create)
    assert made.data == (
        b'{"features":{"group.version":{"max_version_level":1},"transaction.version":{"max_version_level":2}},'
        b'"version":2,"status":1}'
    )
    assert running.state.features == FinalizedFeatures(0, LATEST)
    # The node comes before the topic, and before each request to a broker.
    assert isinstance(running.effects[0], Write)
    assert made in running.effects[0].operations
    running.effects.clear()
    running.create_topic("u")
    assert running.written == []


def test_a_topic_that_another_broker_has_written_is_the_first_one() -> None:
    running = Running()
    running.take_over(OURS)
    running.stored["t"] = TOPIC
    running.handle(TopicsListed(["t"]))
    [made] = running.written
    assert decode_features(made.data).features == LATEST


def test_a_broker_without_features_that_comes_before_the_first_topic_settles_it() -> None:
    """Also if it is gone when the topic is created: it may come back."""
    running = Running()
    running.take_over({A: broker(A)})
    running.handle(BrokersChanged(WITH_KAFKA))
    [made] = running.written
    assert (type(made), made.data) == (Create, NOTHING)
    assert running.connected == [A, B]
    running.handle(BrokersChanged({A: broker(A)}))
    running.create_topic("t")
    assert running.written == [made]
    assert running.state.features == FinalizedFeatures(0, {})


def test_a_controller_of_kafka_has_made_the_node_before_the_first_topic() -> None:
    running = Running()
    running.take_over(OURS)
    running.errors.append(MultiFailed(1, NodeExists(FEATURE)))
    running.feature = node(0)
    running.create_topic("t")
    assert len(running.written) == 1
    assert running.state.features == FinalizedFeatures(0, {})


def test_an_update_settles_the_features_of_a_new_cluster() -> None:
    running = Running()
    running.take_over(OURS)
    assert running.update(to("group.version", 0, UNSAFE), validate_only=True) == NO_FEATURES.epoch
    assert running.written == []
    assert running.update(to("group.version", 0, UNSAFE)) == 0
    [made] = running.written
    assert (type(made), made.data) == (Create, NOTHING)
    running.create_topic("t")
    assert running.state.features == FinalizedFeatures(0, {})


@pytest.mark.parametrize(
    ("brokers", "topics", "level", "data"),
    [
        (WITH_KAFKA, {}, None, NOTHING),
        (OURS, {"t": TOPIC}, None, NOTHING),
        (OURS, {}, "3.9", NOTHING),
        (OURS, {}, "3.8", NOTHING),
        (OURS, {}, "3.0", b'{"features":{},"version":1,"status":1}'),
        (OURS, {}, "2.6", b'{"features":{},"version":1,"status":0}'),
    ],
    ids=["another member", "not new", "level set", "lower level", "level below 3.3", "level below 2.7"],
)
def test_a_cluster_that_others_may_belong_to_finalizes_nothing(
    brokers: dict[BrokerId, BrokerImage],
    topics: dict[str, StoredTopic],
    level: str | None,
    data: bytes,
) -> None:
    running = Running(level=level)
    running.take_over(brokers, **topics)
    [made] = running.written
    assert (type(made), made.data) == (Create, data)
    assert running.state.features.levels == {}
    assert running.connected == [A, B]


@pytest.mark.parametrize("levels", [{}, {"group.version": 1}])
def test_a_node_that_exists_stays(levels: dict[str, int]) -> None:
    running = Running(node(4, levels))
    running.take_over(OURS)
    assert running.written == []
    assert running.state.features.epoch == 4
    assert running.state.features.levels == levels


def test_a_disabled_node_is_enabled_without_features() -> None:
    running = Running(node(4, {"group.version": 1}, enabled=False, format_version=1))
    running.take_over(OURS)
    [changed] = running.written
    assert isinstance(changed, SetData)
    assert (changed.data, changed.version) == (b'{"features":{},"version":2,"status":1}', 4)
    assert running.state.features == FinalizedFeatures(5, {})


def test_a_controller_that_has_lost_its_office_writes_nothing() -> None:
    running = Running()
    running.errors.append(MultiFailed(0, BadVersion("/controller_epoch")))
    running.take_over(WITH_KAFKA)
    assert isinstance(running.effects[-1], Resign)


def test_a_broker_without_the_finalized_features_is_ignored() -> None:
    running = Running(node(4, {"group.version": 1}))
    running.take_over(WITH_KAFKA)
    assert running.connected == [A]
    assert list(running.state.image.brokers) == [A]
    running.handle(BrokersChanged({**WITH_KAFKA, BrokerId(3): broker(BrokerId(3))}))
    assert running.connected == [A, 3]
    # A level that is lower than the one it supports at least.
    narrow = broker(B, {"group.version": LevelRange(2, 3)})
    running.handle(BrokersChanged({A: broker(A), B: narrow}))
    assert running.connected == [A]


def test_levels_go_up_and_down() -> None:
    running = Running(node(4))
    running.take_over(OURS)
    assert running.update(to("group.version", 1), to("transaction.version", 2)) == 5
    [changed] = running.written
    assert isinstance(changed, SetData)
    assert (decode_features(changed.data).features, changed.version) == (LATEST, 4)
    running.feature = node(5, LATEST)
    assert running.update(to("group.version", 1)) == 5
    assert running.written == []
    assert running.update(to("transaction.version", 1, SAFE), to("group.version", 0, UNSAFE)) == 6
    [changed] = running.written
    assert changed.data == (
        b'{"features":{"transaction.version":{"max_version_level":1}},"version":2,"status":1}'
    )
    assert running.state.features == FinalizedFeatures(6, {"transaction.version": 1})


def test_a_check_changes_nothing() -> None:
    running = Running(node(4))
    running.take_over(OURS)
    assert running.update(to("group.version", 1), validate_only=True) == 4
    assert running.written == []
    assert isinstance(running.update(to("group.version", 9), validate_only=True), InvalidUpdateVersion)


@pytest.mark.parametrize(
    ("update", "reason"),
    [
        (to("nope", 1), "Local controller 1 does not support this feature."),
        (to("nope", 0, SAFE), "Feature nope not found."),
        (to("group.version", 2), "Local controller 1 only supports versions 0-1"),
        (to("group.version", -1), "A feature version cannot be less than 0."),
        (
            to("group.version", 1, UpgradeType.UNKNOWN),
            "The controller does not support the given upgrade type.",
        ),
        (to("transaction.version", 2, SAFE), "Can't downgrade to a newer version."),
        (
            to("transaction.version", 0),
            (
                "Can't downgrade the version of this feature without setting the upgrade type to either safe or"
                " unsafe downgrade."
            ),
        ),
    ],
)
def test_updates_that_are_refused_change_nothing(update: FeatureUpdate, reason: str) -> None:
    running = Running(node(4, {"transaction.version": 1}))
    running.take_over(OURS)
    refused = running.update(to("group.version", 1), update)
    assert isinstance(refused, InvalidUpdateVersion)
    assert str(refused) == (
        "The update failed for all features since the following feature had an error: Invalid update version"
        f" {update.level} for feature {update.feature}. {reason}"
    )
    assert running.written == []


def test_every_live_broker_has_to_support_a_level() -> None:
    running = Running(node(4))
    running.take_over(WITH_KAFKA)
    refused = running.update(to("group.version", 1))
    assert isinstance(refused, InvalidUpdateVersion)
    assert str(refused).endswith("Broker 2 does not support this feature.")
    running.handle(BrokersChanged({A: broker(A), B: broker(B, {"group.version": LevelRange(0, 1)})}))
    assert running.update(to("group.version", 1)) == 5
    refused = running.update(to("transaction.version", 1))
    assert str(refused).endswith("Broker 2 does not support this feature.")


def test_a_change_of_the_node_in_between_is_read_again() -> None:
    running = Running(node(4))
    running.take_over(OURS)
    running.errors.append(MultiFailed(1, BadVersion(FEATURE)))
    assert running.update(to("group.version", 1)) == 5
    assert len(running.written) == 2
    running.errors.append(MultiFailed(0, BadVersion("/controller_epoch")))
    assert isinstance(running.update(to("transaction.version", 2)), NotController)


def test_there_are_no_features_at_a_low_protocol_level() -> None:
    running = Running(level="2.6")
    running.take_over(OURS)
    refused = running.update(to("group.version", 1))
    assert isinstance(refused, InvalidRequest)
    assert str(refused) == "Feature versioning system is disabled."
