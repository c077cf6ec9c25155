"""The requests of the admin client: to the right broker for each item, repeated where that may help, until the time is
over.

A call concerns items: topics, partitions, groups, brokers. Each item has a broker (its leader, its coordinator, the
controller, any); items with the same broker go in one request. A response has a value or an error for each item. Items
with a retriable error are located and requested again; the others are done.

A call with one item raises the item's error directly. A call with several items raises AdminErrors if some have failed,
with the errors and the results of the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping
from typing import Any, Final, TypeAlias, TypeVar

from barnabas.client.admin.errors import AdminErrors
from barnabas.client.arguments import as_numbers
from barnabas.client.connections.brokers import Brokers, backoff_ms_after, retrying
from barnabas.client.connections.coordinator import Coordinator, CoordinatorType
from barnabas.client.settings import AdminSettings
from barnabas.errors import (
    NONE,
    BrokerIdNotRegistered,
    CoordinatorNotAvailable,
    GroupIdNotFound,
    GroupSubscribedToTopic,
    InvalidConfig,
    InvalidTopicException,
    KafkaError,
    LeaderNotAvailable,
    LogDirNotFound,
    NetworkException,
    NonEmptyGroup,
    NotController,
    OffsetOutOfRange,
    RequestTimedOut,
    TransactionalIdNotFound,
    UnknownMemberId,
    UnknownServerError,
    UnknownTopicId,
    UnknownTopicOrPartition,
    error_for_code,
    error_name,
)
from barnabas.model import TopicPartition
from barnabas.peers.node import Node
from barnabas.protocol.message import ZERO_UUID, Message
from barnabas.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.metadata_response import MetadataResponse

Item = TypeVar("Item", bound=Hashable)
Value = TypeVar("Value")
Located: TypeAlias = Mapping[Item, int | KafkaError | None]
Outcomes: TypeAlias = Mapping[Item, Value | KafkaError]

# A new topic reaches the brokers one after the other, so the client asks again for an unknown one. But a user with a
# mistyped name does not wait for a minute, as in Kafka's own client.
UNKNOWN_TOPIC_RETRIES: Final = 3
COORDINATORS_MAX: Final = 10_000
# The meaning of a code for its item, if the broker sends no message.
WORDS: Final[Mapping[int, str]] = {
    UnknownTopicOrPartition.code: "does not exist",
    UnknownMemberId.code: "is not in the group",
    NonEmptyGroup.code: "still has members",
    GroupIdNotFound.code: "does not exist",
    GroupSubscribedToTopic.code: "is read by the group at the moment",
    InvalidTopicException.code: "has a name that no topic can have",
    LogDirNotFound.code: "cannot go there: the broker has no such directory",
    OffsetOutOfRange.code: "has no such offset",
    TransactionalIdNotFound.code: "does not exist",
}
ONLY_NETWORK: Final = (NetworkException, RequestTimedOut)
FROM_CONTROLLER: Final = (NetworkException, RequestTimedOut, NotController)


class AdminCore:
    def __init__(self, settings: AdminSettings) -> None:
        """Must be created on the loop that uses it."""
        self._settings = settings
        self._brokers = Brokers(settings)
        self._random = random.Random()
        self._controller: int | None = None
        self._coordinators: dict[tuple[CoordinatorType, str], Coordinator] = {}

    def metrics(self) -> dict[str, float]:
        """Metrics of the connections, by the names of Kafka's own metrics."""
        return self._brokers.metrics()

    async def close(self, *, timeout_ms: float | None = None) -> None:
        """Closes the connections; waits for at most `timeout_ms`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                await self._brokers.close()

    def _timeout_ms(self, timeout_ms: float | None) -> float:
        return self._settings.default_api_timeout_ms if timeout_ms is None else timeout_ms

    async def _once(
        self,
        what: str,
        attempt: Callable[[], Awaitable[Value]],
        timeout_ms: float | None,
        *,
        retriable: tuple[type[KafkaError], ...] | None = None,
    ) -> Value:
        """A call that succeeds or fails as a whole."""
        retries = 0

        def is_retriable(error: KafkaError) -> bool:
            nonlocal retries
            self._forget(error)
            retries += 1
            return retries <= self._settings.retries and (
                error.retriable if retriable is None else isinstance(error, retriable)
            )

        return await retrying(
            attempt,
            settings=self._settings,
            timeout_ms=self._timeout_ms(timeout_ms),
            what=what,
            is_retriable=is_retriable,
        )

    async def _each(
        self,
        what: str,
        items: Iterable[Item],
        locate: Callable[[list[Item]], Awaitable[Located[Item]]],
        ask: Callable[[int | None, list[Item]], Awaitable[Outcomes[Item, Value]]],
        timeout_ms: float | None,
        *,
        retriable: tuple[type[KafkaError], ...] | None = None,
        forget: Callable[[Item, KafkaError], object] | None = None,
    ) -> dict[Item, Value]:
        """The value of each item, from the broker at which it is located; see the top of this module.

        `retriable` are the errors to retry, by default Kafka's retriable errors; `forget` is called for each of them.
        """
        done: dict[Item, Value | KafkaError] = {}
        failed: dict[Item, KafkaError] = {}
        waiting = list(dict.fromkeys(items))
        allowed_ms = self._timeout_ms(timeout_ms)
        attempts = 0
        outcomes: dict[Item, Value | KafkaError] = {}
        try:
            async with asyncio.timeout(allowed_ms / 1000):
                while waiting:
                    outcomes = {}
                    await self._attempt(waiting, locate, ask, outcomes)
                    for item, outcome in outcomes.items():
                        if not isinstance(outcome, KafkaError) or not self._may_pass(
                            outcome, attempts, retriable
                        ):
                            done[item] = outcome
                            continue
                        failed[item] = outcome
                        self._forget(outcome)
                        if forget is not None:
                            forget(item, outcome)
                    waiting = [item for item in waiting if item not in done]
                    if waiting:
                        await asyncio.sleep(self._backoff_ms(attempts) / 1000)
                    attempts += 1
        except TimeoutError:
            # Some brokers of the last attempt may have answered, and only others not.
            done |= {item: found for item, found in outcomes.items() if not isinstance(found, KafkaError)}
            for item in [each for each in waiting if each not in done]:
                because = f": {_told(failed[item])}" if item in failed else ""
                done[item] = RequestTimedOut(f"{what} was not done within {allowed_ms:g} ms{because}")
        return self._results(what, done)

    async def _attempt(
        self,
        items: list[Item],
        locate: Callable[[list[Item]], Awaitable[Located[Item]]],
        ask: Callable[[int | None, list[Item]], Awaitable[Outcomes[Item, Value]]],
        outcomes: dict[Item, Value | KafkaError],
    ) -> None:
        """Asks once for each item; the results arrive as soon as their brokers have answered."""
        by_broker: dict[int | None, list[Item]] = {}
        try:
            located = await locate(items)
        except KafkaError as error:
            outcomes.update(dict.fromkeys(items, error))
            return
        for item in items:
            place = located[item]
            if isinstance(place, KafkaError):
                outcomes[item] = place
            else:
                by_broker.setdefault(place, []).append(item)

        async def ask_one(node: int | None, wanted: list[Item]) -> None:
            try:
                answered = await ask(node, wanted)
            except KafkaError as error:
                answered = dict.fromkeys(wanted, error)
            for item in wanted:
                missing = UnknownServerError(f"the broker's answer leaves out {item}")
                outcomes[item] = answered.get(item, missing)

        await asyncio.gather(*(ask_one(node, wanted) for node, wanted in by_broker.items()))

    def _may_pass(
        self, error: KafkaError, attempts: int, retriable: tuple[type[KafkaError], ...] | None
    ) -> bool:
        if attempts >= self._settings.retries:
            return False
        if isinstance(error, UnknownTopicOrPartition | UnknownTopicId) and attempts >= UNKNOWN_TOPIC_RETRIES:
            return False
        return error.retriable if retriable is None else isinstance(error, retriable)

    def _backoff_ms(self, failures: int) -> float:
        return backoff_ms_after(
            failures,
            first_ms=self._settings.retry_backoff_ms,
            max_ms=self._settings.retry_backoff_max_ms,
            chooser=self._random,
        )

    @staticmethod
    def _results(what: str, outcomes: Outcomes[Item, Value]) -> dict[Item, Value]:
        errors = {item: outcome for item, outcome in outcomes.items() if isinstance(outcome, KafkaError)}
        results = {item: outcome for item, outcome in outcomes.items() if not isinstance(outcome, KafkaError)}
        if not errors:
            return results
        if len(outcomes) == 1:
            raise next(iter(errors.values()))
        raise AdminErrors(what, errors, results)

    def _forget(self, error: KafkaError) -> None:
        if isinstance(error, FROM_CONTROLLER):
            self._controller = None

    async def _request(self, node: int | None, request: Message, max_version: int | None = None) -> Any:
        return await self._brokers.request(node, request, max_version=max_version)

    async def _metadata(self, topics: Collection[str] | None) -> MetadataResponse:
        """A broker's metadata of the cluster and of the topics, all topics if None."""
        request = MetadataRequest(
            topics=None if topics is None else [MetadataRequestTopic(name=name) for name in topics],
            allow_auto_topic_creation=False,
        )
        answer: MetadataResponse = await self._request(None, request)
        raise_for(answer.error_code, None, "the cluster")
        self._brokers.set_nodes(
            Node(each.node_id, each.host, each.port, each.rack) for each in answer.brokers
        )
        self._controller = answer.controller_id if answer.controller_id >= 0 else None
        return answer

    async def _at_any(self, items: list[Item]) -> dict[Item, int | KafkaError | None]:
        return dict.fromkeys(items)

    async def _at_controller(self, items: list[Item]) -> dict[Item, int | KafkaError | None]:
        return dict.fromkeys(items, await self._find_controller())

    async def _find_controller(self) -> int:
        if self._controller is None:
            await self._metadata(())
        if self._controller is None:
            raise NotController("the cluster has no controller at the moment")
        return self._controller

    async def _at_leaders(
        self, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, int | KafkaError | None]:
        answer = await self._metadata({partition.topic for partition in partitions})
        located: dict[TopicPartition, int | KafkaError | None] = {}
        for topic in answer.topics:
            name = topic.name or ""
            leaders = {each.partition_index: each.leader_id for each in topic.partitions}
            for partition in partitions:
                if partition.topic != name:
                    continue
                if topic.error_code != NONE:
                    located[partition] = error_of(topic.error_code, None, f"topic {name}")
                elif partition.partition not in leaders:
                    located[partition] = UnknownTopicOrPartition(
                        f"topic {name} has {len(leaders)} partitions, and none with the number {partition.partition}"
                    )
                elif leaders[partition.partition] < 0:
                    located[partition] = LeaderNotAvailable(f"{partition} has no leader at the moment")
                else:
                    located[partition] = leaders[partition.partition]
        for partition in partitions:
            located.setdefault(partition, UnknownServerError(f"the metadata leaves out {partition.topic}"))
        return located

    async def _at_coordinators(
        self, kind: CoordinatorType, keys: list[str]
    ) -> dict[str, int | KafkaError | None]:
        async def find(key: str) -> int | KafkaError:
            try:
                return await self._coordinator(kind, key).find()
            except KafkaError as error:
                return error

        return dict(zip(keys, await asyncio.gather(*map(find, keys)), strict=True))

    async def _at_group_coordinators(self, groups: list[str]) -> dict[str, int | KafkaError | None]:
        return await self._at_coordinators(CoordinatorType.GROUP, groups)

    async def _at_transaction_coordinators(self, ids: list[str]) -> dict[str, int | KafkaError | None]:
        return await self._at_coordinators(CoordinatorType.TRANSACTION, ids)

    def _coordinator(self, kind: CoordinatorType, key: str) -> Coordinator:
        known = self._coordinators.get((kind, key))
        if known is None:
            if len(self._coordinators) >= COORDINATORS_MAX:
                self._coordinators.clear()
            known = self._coordinators[kind, key] = Coordinator(self._brokers, kind, key)
        return known

    def _forget_group_coordinator(self, group: str, error: KafkaError) -> None:
        self._coordinator(CoordinatorType.GROUP, group).forget_if_moved(error)

    def _forget_transaction_coordinator(self, transactional_id: str, error: KafkaError) -> None:
        self._coordinator(CoordinatorType.TRANSACTION, transactional_id).forget_if_moved(error)

    async def _at_group_coordinator(
        self, what: str, group: str, ask: Callable[[int], Awaitable[Value]], timeout_ms: float | None
    ) -> Value:
        """A call about one group, which raises what goes wrong."""

        async def ask_one(node: int | None, groups: list[str]) -> dict[str, Value | KafkaError]:
            assert node is not None
            return {group: await ask(node)}

        found = await self._each(
            what,
            [group],
            self._at_group_coordinators,
            ask_one,
            timeout_ms,
            forget=self._forget_group_coordinator,
        )
        return found[group]

    async def _all_brokers(self) -> list[int]:
        nodes = [each.node_id for each in (await self._metadata(())).brokers]
        if not nodes:
            raise CoordinatorNotAvailable("the cluster has no brokers at the moment")
        return nodes

    async def _every_broker(
        self,
        what: str,
        ask: Callable[[int], Awaitable[Value]],
        timeout_ms: float | None,
        brokers: Iterable[int] | None = None,
    ) -> dict[int, Value]:
        """The response of each broker, of all brokers of the cluster if none is named."""
        chosen = (
            await self._once(what, self._all_brokers, timeout_ms)
            if brokers is None
            else as_numbers(brokers, "brokers")
        )

        async def locate(nodes: list[int]) -> dict[int, int | KafkaError | None]:
            known = {node.id for node in self._brokers.nodes} or set(await self._all_brokers())
            return {node: node if node in known else no_such_broker(node) for node in nodes}

        async def ask_one(node: int | None, nodes: list[int]) -> dict[int, Value | KafkaError]:
            assert node is not None
            return {node: await ask(node)}

        return await self._each(what, chosen, locate, ask_one, timeout_ms)


def error_of(code: int, message: str | None, item: object) -> KafkaError:
    """The error for a code in a response; it names the item, also where the broker's message does not."""
    # An item such as "topic orders": a message may have only the name.
    if message and str(item).rpartition(" ")[2] in message:
        return error_for_code(code, message)
    if code in WORDS:
        return error_for_code(code, f"{item} {WORDS[code]}")
    return error_for_code(code, f"{item}: {message or error_name(code)}")


def no_such_broker(broker_id: object) -> KafkaError:
    return BrokerIdNotRegistered(f"there is no broker {broker_id} in the cluster")


def raise_for(code: int, message: str | None, item: object) -> None:
    if code != NONE:
        raise error_of(code, message, item)


def outcome_of(code: int, message: str | None, item: object, value: Value) -> Value | KafkaError:
    return value if code == NONE else error_of(code, message, item)


def topic_id_text(topic_id: bytes) -> str | None:
    """A topic's id as Kafka shows it."""
    from barnabas.protocol.json_form import uuid_to_text

    return None if topic_id == ZERO_UUID else uuid_to_text(topic_id)


def none_if_negative(number: int) -> int | None:
    return None if number < 0 else number


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    grouped: dict[str, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return grouped


def _told(error: KafkaError) -> str:
    return str(error) if str(error) == error.name else f"{error.name}: {error}"


def config_text(name: str, value: object) -> str | None:
    """The value of a setting as brokers take it; numbers and booleans are as good as texts."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
        return ",".join(value)
    raise InvalidConfig(
        f"{name}={value!r}: the value of a setting is a text, number, boolean or list of texts"
    )
