"""The shell of the controller: it takes part in elections and carries out the effects of the machine.

Every broker has one. While another broker is the controller, requests are rejected with NotController. After an
election that this broker wins, the shell reads the cluster and a new machine takes over; the shell carries out its
effects one after the other. A change runs to its end even if its requester is cancelled.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from random import Random
from typing import Any

from barnabas.clock import Clock
from barnabas.config.live_settings import LiveSettings
from barnabas.coordination.controller.election import elect
from barnabas.coordination.controller.events import (
    NO_IDS,
    AdoptTopics,
    AlterReassignments,
    Answered,
    Ask,
    Asked,
    BrokersChanged,
    Closing,
    ControlRequest,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    Effect,
    ElectLeaders,
    Event,
    ReadTopics,
    ReadTree,
    Reply,
    Request,
    Resign,
    Result,
    Send,
    Stored,
    StoreRefused,
    TakeOver,
    TopicsListed,
    TopicsRead,
    TreeRead,
    Write,
)
from barnabas.coordination.controller.links import BrokerLinks, ControlResponse
from barnabas.coordination.controller.machine import ControllerMachine
from barnabas.coordination.controller.reading import read_cluster, read_topics, read_tree
from barnabas.coordination.controller.state import Claim, ControllerState
from barnabas.coordination.metadata.image import MetadataImage, TopicImage, Uuid
from barnabas.coordination.metadata.membership import registered_brokers
from barnabas.coordination.metadata.tree import CONTROLLER, TOPICS
from barnabas.coordination.planning.partition_changes import ElectionType
from barnabas.coordination.planning.topic_adoption import FoundPartition
from barnabas.coordination.planning.topic_creation import (
    Charge,
    NewPartitions,
    NewTopic,
    Planned,
    free_of_charge,
)
from barnabas.coordination.store.contract import SessionState, Store, StoreError, WatchEvent
from barnabas.errors import KafkaError, NotController, UnknownServerError
from barnabas.model import BrokerId, TopicPartition
from barnabas.protocol.messages.stop_replica_request import StopReplicaRequest
from barnabas.protocol.messages.stop_replica_response import StopReplicaResponse

log = logging.getLogger(__name__)

PartitionResults = dict[TopicPartition, KafkaError | None]


class Controller:
    def __init__(
        self,
        store: Store,
        broker_id: BrokerId,
        cluster_id: str,
        settings: LiveSettings,
        links: BrokerLinks,
        clock: Clock,
        rng: Random,
    ) -> None:
        self._store = store
        self._broker_id = broker_id
        self._cluster_id = cluster_id
        self._settings = settings
        self._links = links
        self._clock = clock
        self._rng = rng
        self._machine: ControllerMachine | None = None
        self._refusal: KafkaError = NotController("This is not the correct controller for this cluster.")
        self._is_closed = False
        self._tickets: dict[int, asyncio.Future[Any]] = {}
        self._last_ticket = 0
        # Requests to the broker in this process, and how many of them it has carried out.
        self._sent_here = 0
        self._answered_here = 0
        # Replies that wait until this broker has carried out the requests before them.
        self._held: deque[tuple[int, int, Any]] = deque()
        self._questions: dict[int, asyncio.Future[ControlResponse | None]] = {}
        links.listen(self._on_answer)
        # The work to do, in order. A task runs while there is any.
        self._work: deque[Callable[[], Awaitable[None]]] = deque()
        self._worker: asyncio.Task[None] | None = None

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller, as far as it knows."""
        return self._machine is not None

    async def start(self, *, clean_stop: bool = True) -> None:
        """Takes part in the election, and takes over if this broker wins. From then on it follows elections.

        `clean_stop` says that the logs of this broker are known to be whole. Raises KafkaError or StoreError.
        """
        self._store.add_session_listener(self._on_session)
        await self._do(lambda: self._elect(() if clean_stop else (self._broker_id,)))

    async def rejoin(self) -> None:
        """Takes part in the election in a new session. Raises KafkaError or StoreError."""
        await self._do(self._elect)

    async def close(self) -> None:
        """Waits for the change under way and refuses later ones. The caller ends the session with the store."""
        if not self._is_closed:
            self._is_closed = True
            await self._do(self._close)

    async def create_topics(
        self, new: Sequence[NewTopic], *, validate_only: bool = False, charge: Charge = free_of_charge
    ) -> list[Planned]:
        planned: list[Planned] = await self._ask(CreateTopics(new, validate_only, charge))
        return planned

    async def adopt_topics(self, found: Mapping[TopicPartition, FoundPartition]) -> list[TopicImage]:
        """Makes topics of directories of this broker that the store does not know."""
        adopted: list[TopicImage] = await self._ask(AdoptTopics(self._broker_id, found))
        return adopted

    async def delete_topics(
        self, names: Collection[str], *, ids: Mapping[str, Uuid] = NO_IDS, charge: Charge = free_of_charge
    ) -> dict[str, KafkaError | None]:
        """A topic that has an id in `ids` is deleted only if that is its id when the request has its turn."""
        results: dict[str, KafkaError | None] = await self._ask(DeleteTopics(names, ids, charge))
        return results

    async def create_partitions(
        self, new: Sequence[NewPartitions], *, validate_only: bool = False, charge: Charge = free_of_charge
    ) -> list[TopicImage | KafkaError]:
        results: list[TopicImage | KafkaError] = await self._ask(CreatePartitions(new, validate_only, charge))
        return results

    async def elect_leaders(
        self, partitions: Collection[TopicPartition], election: ElectionType
    ) -> PartitionResults:
        results: PartitionResults = await self._ask(ElectLeaders(partitions, election))
        return results

    async def alter_reassignments(
        self,
        targets: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
    ) -> PartitionResults:
        request = AlterReassignments(targets, allow_replication_factor_change)
        results: PartitionResults = await self._ask(request)
        return results

    async def _ask(self, request: Request) -> Any:
        if self._is_closed:
            raise NotController("the broker is stopping")
        ticket, reply = self._take_ticket()
        self._add_work(lambda: self._answer(ticket, request))
        return await reply

    async def _answer(self, ticket: int, request: Request) -> None:
        try:
            await self._feed(Asked(ticket, request), ticket)
        except Exception:
            # The requester must not wait forever if the controller fails.
            self._reply(ticket, UnknownServerError("the controller failed; its log has the reason"))
            raise

    def _take_ticket(self) -> tuple[int, asyncio.Future[Any]]:
        self._last_ticket += 1
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._tickets[self._last_ticket] = reply
        return self._last_ticket, reply

    def _reply(self, ticket: int, outcome: Any) -> None:
        reply = self._tickets.pop(ticket, None)
        # A requester may have been cancelled in the meantime, or refused.
        if reply is not None and not reply.done():
            if isinstance(outcome, KafkaError):
                reply.set_exception(outcome)
            else:
                reply.set_result(outcome)

    async def _do(self, work: Callable[[], Awaitable[None]]) -> None:
        """Runs work in its turn, and raises its error."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def run() -> None:
            try:
                await work()
            except Exception as error:
                done.set_exception(error)
            else:
                done.set_result(None)

        self._add_work(run)
        await asyncio.shield(done)

    def _add_work(self, work: Callable[[], Awaitable[None]]) -> None:
        self._work.append(work)
        if self._worker is None:
            self._worker = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            while self._work:
                try:
                    await self._work.popleft()()
                except Exception:
                    log.exception("The controller failed")
        finally:
            self._worker = None

    async def _feed(self, event: Event, ticket: int | None = None) -> None:
        """Gives an event to the machine and carries out what follows from it, to the end."""
        machine = self._machine
        if machine is None:
            if ticket is not None:
                self._reply(ticket, self._refusal)
            return
        effects = machine.handle(event)
        while effects:
            result: Result | None = None
            for effect in effects:
                result = await self._carry_out(effect)
            effects = [] if result is None else machine.handle(result)

    async def _carry_out(self, effect: Effect) -> Result | None:
        match effect:
            case Write() | ReadTopics() | ReadTree():
                try:
                    return await self._use_store(effect)
                except StoreError as error:
                    return StoreRefused(error)
            case Send(broker_id, request):
                self._send(broker_id, request)
            case Ask(requests):
                return await self._ask_brokers(requests)
            case Reply(ticket, outcome):
                self._held.append((self._sent_here, ticket, outcome))
                self._release()
            case Resign(reason):
                self._resign(reason)
        return None

    async def _use_store(self, effect: Write | ReadTopics | ReadTree) -> Result:
        match effect:
            case Write(operations):
                await self._store.multi(operations)
                return Stored()
            case ReadTopics(names):
                return TopicsRead(await read_topics(self._store, names))
            case ReadTree(roots):
                return TreeRead(await read_tree(self._store, roots))

    def _send(self, broker_id: BrokerId, request: ControlRequest) -> None:
        if broker_id == self._broker_id:
            self._sent_here += 1
        self._links.send(broker_id, request)

    async def _ask_brokers(self, requests: Mapping[BrokerId, StopReplicaRequest]) -> Answered:
        answers: dict[BrokerId, StopReplicaResponse | None] = {}
        loop = asyncio.get_running_loop()
        for broker_id, request in requests.items():
            self._questions[id(request)] = loop.create_future()
            self._send(broker_id, request)
        for broker_id, request in requests.items():
            answer = await self._questions[id(request)]
            del self._questions[id(request)]
            answers[broker_id] = answer if isinstance(answer, StopReplicaResponse) else None
        return Answered(answers)

    def _on_answer(
        self, broker_id: BrokerId, request: ControlRequest, response: ControlResponse | None
    ) -> None:
        question = self._questions.get(id(request))
        if question is not None:
            question.set_result(response)
        if broker_id == self._broker_id:
            self._answered_here += 1
            self._release()

    def _release(self, *, at_once: bool = False) -> None:
        """Replies in order. A client may use what it has asked for as soon as it has the reply."""
        while self._held and (at_once or self._held[0][0] <= self._answered_here):
            _, ticket, outcome = self._held.popleft()
            self._reply(ticket, outcome)

    async def _elect(self, unclean: Collection[BrokerId] = ()) -> None:
        if self._is_closed:
            return
        node = await self._store.exists(CONTROLLER, self._on_controller_node)
        if self._machine is not None:
            if node is not None and node.ephemeral_owner == self._store.session_id:
                return
            self._resign(NotController("another broker has become the controller"))
        claim = None if node is not None else await elect(self._store, self._broker_id, self._clock)
        if claim is None:
            log.info("Another broker is the controller")
            return
        log.info("Broker %d is the controller in epoch %d", self._broker_id, claim.controller_epoch)
        try:
            await self._take_over(claim, unclean)
        except (KafkaError, StoreError):
            self._machine = None
            raise

    async def _take_over(self, claim: Claim, unclean: Collection[BrokerId]) -> None:
        snapshot = await read_cluster(self._store, self._on_brokers, self._on_topics)
        image = MetadataImage(
            cluster_id=self._cluster_id,
            controller_id=self._broker_id,
            controller_epoch=claim.controller_epoch,
        )
        self._machine = ControllerMachine(ControllerState(claim, self._settings, self._rng, image))
        ticket, reply = self._take_ticket()
        await self._feed(Asked(ticket, TakeOver(snapshot, unclean)), ticket)
        await reply

    def _resign(self, reason: KafkaError) -> None:
        if not self._is_closed:
            log.warning("This broker is no longer the controller: %s", reason)
        self._machine = None
        self._links.connect({})
        self._release(at_once=True)
        for ticket in list(self._tickets):
            self._reply(ticket, reason)

    def _on_session(self, state: SessionState) -> None:
        """With its session the broker has lost its registration, and its office."""
        if state in (SessionState.EXPIRED, SessionState.CLOSED) and not self._is_closed:
            self._add_work(self._lose_session)

    async def _lose_session(self) -> None:
        if self._machine is not None:
            self._resign(NotController("the session with the store is over"))

    def _on_controller_node(self, event: WatchEvent) -> None:
        """The node of the controller has gone, or come, or changed."""
        if not self._is_closed:
            self._add_work(self._follow_controller)

    async def _follow_controller(self) -> None:
        try:
            await self._elect()
        except (KafkaError, StoreError) as error:
            log.error("This broker cannot become the controller: %s", error)

    def _on_brokers(self, event: WatchEvent) -> None:
        self._add_work(self._read_brokers)

    def _on_topics(self, event: WatchEvent) -> None:
        self._add_work(self._list_topics)

    async def _read_brokers(self) -> None:
        if self._machine is not None:
            await self._feed(BrokersChanged(await registered_brokers(self._store, self._on_brokers)))

    async def _list_topics(self) -> None:
        if self._machine is not None:
            names, _ = await self._store.children(TOPICS, self._on_topics)
            await self._feed(TopicsListed(names))

    async def _close(self) -> None:
        self._refusal = NotController("the broker is stopping")
        await self._feed(Closing())
        await self._links.close()
        self._release(at_once=True)
        self._machine = None
