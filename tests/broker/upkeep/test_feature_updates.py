"""A safe downgrade of group.version asks all brokers for groups that would lose their members."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from barnabas.broker.upkeep.feature_updates import FeatureUpdates
from barnabas.coordination.metadata.cache import MetadataCache
from barnabas.coordination.metadata.features import FinalizedFeatures
from barnabas.coordination.metadata.image import BrokerImage, MetadataImage
from barnabas.coordination.planning.feature_levels import FeatureUpdate, UpgradeType
from barnabas.errors import (
    CoordinatorLoadInProgress,
    FeatureUpdateFailed,
    InvalidUpdateVersion,
    KafkaError,
    NetworkException,
    NotController,
)
from barnabas.model import BrokerId
from barnabas.protocol.messages.list_groups_response import ListedGroup, ListGroupsResponse
from tests.broker.coordinators.other_brokers import OtherBrokers, settle

A, B = BrokerId(1), BrokerId(2)
SAFE = FeatureUpdate("group.version", 0, UpgradeType.SAFE_DOWNGRADE)
UNSAFE = FeatureUpdate("group.version", 0, UpgradeType.UNSAFE_DOWNGRADE)
OTHER = FeatureUpdate("transaction.version", 0, UpgradeType.SAFE_DOWNGRADE)


class World:
    """The controller and the follower note what they are asked to do."""

    def __init__(self, *, is_active: bool = True) -> None:
        self.is_active = is_active
        self.done: list[str] = []
        self.others = OtherBrokers()
        image = MetadataImage(
            cluster_id="c",
            controller_id=A,
            brokers={each: BrokerImage(id=each, epoch=1) for each in (A, B)},
            features=FinalizedFeatures(3, {"group.version": 1, "transaction.version": 2}),
        )
        here = cast(Any, self)
        self.features = FeatureUpdates(here, here, MetadataCache(image), cast(Any, self.others))

    async def update_features(self, updates: Sequence[FeatureUpdate], *, validate_only: bool) -> int:
        self.done.append("check" if validate_only else "update")
        return 4

    async def read(self) -> None:
        self.done.append("read")

    def update(self, *updates: FeatureUpdate, validate_only: bool = False) -> asyncio.Task[None]:
        return asyncio.ensure_future(
            self.features.update(updates, validate_only=validate_only, timeout_ms=1_000)
        )

    async def answer(self, answers: dict[BrokerId, ListGroupsResponse | KafkaError]) -> None:
        await settle()
        assert {each.broker_id for each in self.others.sent} == {A, B}
        for sent in self.others.sent:
            assert (sent.api_name, sent.request.types_filter) == ("ListGroups", ["consumer"])
            answer = answers[sent.broker_id]
            if isinstance(answer, KafkaError):
                sent.answer.set_exception(answer)
            else:
                sent.answer.set_result(answer)


def groups(*names: str, state: str = "Stable", error_code: int = 0) -> ListGroupsResponse:
    return ListGroupsResponse(
        error_code=error_code,
        groups=[ListedGroup(group_id=name, group_type="consumer", group_state=state) for name in names],
    )


def test_groups_without_members_stand_in_no_way() -> None:
    async def main() -> None:
        world = World()
        update = world.update(SAFE)
        await world.answer({A: groups("left", state="Empty"), B: groups()})
        await update
        assert world.done == ["check", "update", "read"]

    asyncio.run(main())


@pytest.mark.parametrize("validate_only", [True, False])
def test_groups_with_members_are_named(validate_only: bool) -> None:
    async def main() -> None:
        world = World()
        update = world.update(OTHER, SAFE, validate_only=validate_only)
        await world.answer({A: groups("c", "d", "e", "f"), B: groups("a", "b", state="Assigning")})
        with pytest.raises(InvalidUpdateVersion) as caught:
            await update
        assert "have members: a, b, c, d, e and 1 more." in str(caught.value)
        assert world.done == ["check"]

    asyncio.run(main())


@pytest.mark.parametrize(
    "answer", [groups(error_code=CoordinatorLoadInProgress.code), NetworkException("gone")]
)
def test_a_broker_that_does_not_tell_stands_in_the_way(answer: ListGroupsResponse | KafkaError) -> None:
    async def main() -> None:
        world = World()
        update = world.update(SAFE)
        await world.answer({A: groups(), B: answer})
        with pytest.raises(FeatureUpdateFailed, match="Broker 2 does not tell"):
            await update
        assert world.done == ["check"]

    asyncio.run(main())


@pytest.mark.parametrize("update", [UNSAFE, OTHER])
def test_nobody_is_asked_where_no_group_counts(update: FeatureUpdate) -> None:
    async def main() -> None:
        world = World()
        await world.update(update)
        assert (world.done, world.others.sent) == (["update", "read"], [])

    asyncio.run(main())


def test_only_the_controller_changes_features() -> None:
    async def main() -> None:
        world = World(is_active=False)
        with pytest.raises(NotController):
            await world.update(OTHER)
        assert world.done == []

    asyncio.run(main())
