"""The shell of the controller: it takes part in elections and carries out the effects of the machine.

Every broker has one. While another broker is the controller, requests are rejected with NotController. After an
election that this broker wins, the shell reads the cluster and a new machine takes over; the shell carries out its
effects one after the other. A change runs to its end even if its requester is cancelled.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, Final

from barnabas.clock import Clock
from barnabas.config.live_settings import LiveSettings
from barnabas.coordination.controller.activities import activity_of_answer, activity_of_change
from barnabas.coordination.controller.election import elect, withdraw
from barnabas.coordination.controller.events import (
    NO_IDS,
    AdoptTopics,
    AlterReassignments,
    Asked,
    BrokersChanged,
    Closing,
    Connect,
    ControlRequest,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    Effect,
    ElectLeaders,
    Event,
    MakeChange,
    News,
    NodesRead,
    ReadNodes,
    ReadTopics,
    ReadTree,
    Replied,
    Reply,
    Request,
    Resign,
    Result,
    Send,
    StartTimer,
    Stored,
    StoredAll,
    StoreRefused,
    TakeOver,
    TopicsListed,
    TreeRead,
    Write,
    WriteAll,
)
from barnabas.coordination.controller.leadership import elect_offline_partitions
from barnabas.coordination.controller.links import BrokerLinks, ControlResponse
from barnabas.coordination.controller.machine import ControllerMachine
from barnabas.coordination.controller.reading import (
    read_change,
    read_cluster,
    read_partition_counts,
    read_topics,
    read_tree,
)
from barnabas.coordination.controller.replies import Replies
from barnabas.coordination.controller.state import Claim, ControllerState, ControllerStats
from barnabas.coordination.controller.work import Activity, WorkQueue
from barnabas.coordination.metadata.image import MetadataImage, PartitionImage, TopicImage, Uuid
from barnabas.coordination.metadata.membership import registered_brokers
from barnabas.coordination.metadata.store_errors import as_kafka_error
from barnabas.coordination.metadata.tree import (
    BROKER_IDS,
    CONTROLLER,
    TOPICS,
)
from barnabas.coordination.planning.partition_changes import ElectionType
from barnabas.coordination.planning.topic_adoption import FoundPartition
from barnabas.coordination.planning.topic_creation import (
    Charge,
    NewPartitions,
    NewTopic,
    Planned,
    free_of_charge,
)
from barnabas.coordination.store.contract import (
    Operation,
    SessionExpired,
    SessionState,
    Store,
    StoreError,
    StoreUnavailable,
    WatchEvent,
)
from barnabas.errors import KafkaError, NotController, StaleControllerEpoch, UnknownServerError
from barnabas.model import BrokerId, TopicPartition
from barnabas.protocol.messages.leader_and_isr_request import LeaderAndIsrRequest

if TYPE_CHECKING:
    from barnabas.coordination.controller.counts import Counts
    from barnabas.coordination.planning.feature_levels import FeatureUpdate
    from barnabas.protocol.messages.allocate_producer_ids_request import AllocateProducerIdsRequest
    from barnabas.protocol.messages.allocate_producer_ids_response import AllocateProducerIdsResponse
    from barnabas.protocol.messages.alter_partition_request import AlterPartitionRequest
    from barnabas.protocol.messages.alter_partition_response import AlterPartitionResponse
    from barnabas.protocol.messages.controlled_shutdown_request import ControlledShutdownRequest
    from barnabas.protocol.messages.controlled_shutdown_response import ControlledShutdownResponse

log = logging.getLogger(__name__)

# A controller that has lost touch tries again after this time.
RETRY_S: Final = 1.0
LATEST_ALTER_PARTITION: Final = 3
UNCLEAN_LEADERS: Final = "unclean.leader.election.enable"

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
        # Between the end of a session and its place in the next one, the broker takes part in no election.
        self._is_away = False
        self._replies = Replies()
        self._timers: set[asyncio.TimerHandle] = set()
        # The next attempt after an election that has failed.
        self._retry: asyncio.TimerHandle | None = None
        # Nodes that have changed and are still to be read.
        self._changed: set[str] = set()
        self._watched_topics: set[str] = set()
        links.listen(self._on_answer)
        self.work = WorkQueue(clock)
        self.stats = ControllerStats()

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller, as far as it knows."""
        return self._machine is not None

    def counts(self) -> Counts:
        from barnabas.coordination.controller.counts import NOTHING, count

        return NOTHING if self._machine is None else count(self._machine.state)

    async def start(self, *, clean_stop: bool = True) -> None:
        """Takes part in the election, and takes over if this broker wins. From then on it follows elections.

        `clean_stop` says that the logs of this broker are known to be whole. Raises KafkaError or StoreError.
        """
        self._store.add_session_listener(self._on_session)
        await self._run_for(() if clean_stop else (self._broker_id,))

    async def rejoin(self) -> None:
        """Takes part in the election in a new session. Raises StoreError."""
        try:
            await self._run_for()
        except KafkaError as error:
            self._try_again_later(error)

    async def _run_for(self, unclean: Collection[BrokerId] = ()) -> None:
        """Takes part in the election. Returns when this broker has its roles, if it has won."""
        takeover: list[asyncio.Future[Any]] = []

        async def run() -> None:
            self._is_away = False
            if self._machine is None:
                # An election that was under way when the last session ended may have left a node.
                await withdraw(self._store)
            takeover.extend(await self._elect(unclean))

        await self.work.do(Activity.CONTROLLER_CHANGE, run)
        for reply in takeover:
            await reply

    async def close(self) -> None:
        """Waits for the change under way and refuses later ones. The caller ends the session with the store."""
        if not self._is_closed:
            self._is_closed = True
            await self.work.do(Activity.CONTROLLER_SHUTDOWN, self._links.close)
            # Answers that came until now are handled first.
            await self.work.do(Activity.CONTROLLER_SHUTDOWN, self._close)

    async def create_topics(
        self, new: Sequence[NewTopic], *, validate_only: bool = False, charge: Charge = free_of_charge
    ) -> list[Planned]:
        request = CreateTopics(new, validate_only, charge)
        planned: list[Planned] = await self._ask(Activity.TOPIC_CHANGE, request)
        return planned

    async def adopt_topics(self, found: Mapping[TopicPartition, FoundPartition]) -> list[TopicImage]:
        """Makes topics of directories of this broker that the store does not know."""
        request = AdoptTopics(self._broker_id, found)
        adopted: list[TopicImage] = await self._ask(Activity.TOPIC_CHANGE, request)
        return adopted

    async def delete_topics(
        self, names: Collection[str], *, ids: Mapping[str, Uuid] = NO_IDS, charge: Charge = free_of_charge
    ) -> dict[str, KafkaError | None]:
        """A topic that has an id in `ids` is deleted only if that is its id when the request has its turn."""
        request = DeleteTopics(names, ids, charge)
        results: dict[str, KafkaError | None] = await self._ask(Activity.TOPIC_DELETION, request)
        return results

    async def create_partitions(
        self, new: Sequence[NewPartitions], *, validate_only: bool = False, charge: Charge = free_of_charge
    ) -> list[TopicImage | KafkaError]:
        request = CreatePartitions(new, validate_only, charge)
        results: list[TopicImage | KafkaError] = await self._ask(Activity.TOPIC_CHANGE, request)
        return results

    async def elect_leaders(
        self, partitions: Collection[TopicPartition], election: ElectionType
    ) -> PartitionResults:
        request = ElectLeaders(partitions, election)
        results: PartitionResults = await self._ask(Activity.MANUAL_LEADER_BALANCE, request)
        return results

    async def alter_reassignments(
        self,
        targets: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
    ) -> PartitionResults:
        request = AlterReassignments(targets, allow_replication_factor_change)
        results: PartitionResults = await self._ask(Activity.ALTER_PARTITION_REASSIGNMENT, request)
        return results

    async def list_reassignments(
        self, partitions: Collection[TopicPartition] | None
    ) -> dict[TopicPartition, PartitionImage]:
        """Reassignments that are under way, of these partitions or of all."""
        from barnabas.coordination.controller import reassignment

        found: dict[TopicPartition, PartitionImage]
        found = await self._ask(
            Activity.LIST_PARTITION_REASSIGNMENT,
            lambda state: reassignment.list_reassignments(state, partitions),
        )
        return found

    async def alter_partition(
        self, request: AlterPartitionRequest, version: int = LATEST_ALTER_PARTITION
    ) -> AlterPartitionResponse:
        from barnabas.coordination.controller import isr_changes
        from barnabas.protocol.messages.alter_partition_response import AlterPartitionResponse

        try:
            answer: AlterPartitionResponse
            answer = await self._ask(
                Activity.ISR_CHANGE,
                lambda state: isr_changes.alter_partition(state, request, version),
                settles=False,
            )
        except KafkaError as error:
            return AlterPartitionResponse(error_code=error.code)
        return answer

    async def allocate_producer_ids(self, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse:
        from barnabas.coordination.controller import broker_requests
        from barnabas.protocol.messages.allocate_producer_ids_response import AllocateProducerIdsResponse

        try:
            answer: AllocateProducerIdsResponse
            answer = await self._ask(
                Activity.IDLE,
                lambda state: broker_requests.allocate_producer_ids(state, request),
                settles=False,
            )
        except KafkaError as error:
            return AllocateProducerIdsResponse(error_code=error.code)
        return answer

    async def controlled_shutdown(self, request: ControlledShutdownRequest) -> ControlledShutdownResponse:
        from barnabas.coordination.controller import broker_requests
        from barnabas.protocol.messages.controlled_shutdown_response import ControlledShutdownResponse

        try:
            answer: ControlledShutdownResponse
            answer = await self._ask(
                Activity.CONTROLLED_SHUTDOWN,
                lambda state: broker_requests.controlled_shutdown(state, request),
                settles=False,
            )
        except KafkaError as error:
            # As in Apache Kafka, this API has another error for it than all others.
            code = StaleControllerEpoch.code if isinstance(error, NotController) else error.code
            return ControlledShutdownResponse(error_code=code)
        return answer

    async def update_features(self, updates: Sequence[FeatureUpdate], *, validate_only: bool = False) -> int:
        """Changes the levels of features, all or none. Returns the epoch of the features."""
        from barnabas.coordination.controller import features

        epoch: int = await self._ask(
            Activity.UPDATE_FEATURES,
            lambda state: features.update_features(state, updates, validate_only=validate_only),
        )
        if not validate_only:
            # A broker that was ignored may be compatible now.
            self.work.add(Activity.BROKER_CHANGE, lambda: self._follow(BROKER_IDS))
        return epoch

    def follow_settings(self, before: MetadataImage, after: MetadataImage) -> None:
        """Where the settings allow unclean leaders now, offline partitions may get one."""
        if self._machine is None:
            return
        if after.broker_configs is not before.broker_configs:
            was, now = (each.broker_config("").get(UNCLEAN_LEADERS) for each in (before, after))
            if now == "true" and was != now:
                self._elect_offline(None)
        if after.topic_configs is not before.topic_configs:
            for name, config in after.topic_configs.items():
                was = before.topic_config(name).get(UNCLEAN_LEADERS)
                if config.get(UNCLEAN_LEADERS) == "true" and was != "true":
                    self._elect_offline(name)

    def _elect_offline(self, topic: str | None) -> None:
        async def run() -> None:
            await self._feed(News(lambda state: elect_offline_partitions(state, topic)))

        unclean = Activity.UNCLEAN_LEADER_ELECTION_ENABLE
        if topic is not None:
            unclean = Activity.TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE
        self.work.add(unclean, run)

    async def _ask(self, activity: Activity, request: Request, *, settles: bool = True) -> Any:
        """`settles` says that the reply waits until this broker has carried out what was sent to it."""
        if self._is_closed:
            raise NotController("the broker is stopping")
        ticket, reply = self._replies.take_ticket(is_urgent=not settles)
        self.work.add(activity, lambda: self._answer(ticket, request))
        return await reply

    async def _answer(self, ticket: int, request: Request) -> None:
        try:
            await self._feed(Asked(ticket, request), ticket)
        except Exception:
            # The requester must not wait forever if the controller fails.
            self._replies.reply(ticket, UnknownServerError("the controller failed; its log has the reason"))
            raise

    async def _feed(self, event: Event, ticket: int | None = None) -> None:
        """Gives an event to the machine and carries out what follows from it, to the end."""
        machine = self._machine
        if machine is None:
            if ticket is not None:
                self._replies.reply(ticket, self._refusal)
            return
        effects = machine.handle(event)
        while effects:
            result: Result | None = None
            for effect in effects:
                result = await self._carry_out(effect)
            effects = [] if result is None else machine.handle(result)

    async def _carry_out(self, effect: Effect) -> Result | None:
        match effect:
            case Write() | WriteAll() | ReadTopics() | ReadNodes() | ReadTree():
                try:
                    return await self._use_store(effect)
                except StoreError as error:
                    return StoreRefused(error)
            case Send(broker_id, request):
                self._send(broker_id, request)
            case Connect(brokers):
                self._links.connect(brokers)
            case StartTimer(delay_s, change):
                self._start_timer(delay_s, change)
            case Reply(ticket, outcome):
                self._replies.hold(ticket, outcome)
            case Resign(reason):
                self._resign(reason)
                if not isinstance(reason, NotController):
                    self.work.add(Activity.CONTROLLER_CHANGE, self._leave_office)
        return None

    async def _use_store(self, effect: Write | WriteAll | ReadTopics | ReadNodes | ReadTree) -> Result:
        match effect:
            case Write(operations):
                await self._store.multi(operations)
                return Stored()
            case WriteAll(transactions):
                return StoredAll(await self._store_all(transactions))
            case ReadNodes(paths):
                return NodesRead(await self._store.get_all(paths))
            case ReadTopics(names):
                return await read_topics(self._store, names)
            case ReadTree(roots):
                return TreeRead(await read_tree(self._store, roots))

    def _send(self, broker_id: BrokerId, request: ControlRequest) -> None:
        if broker_id == self._broker_id and not isinstance(request, LeaderAndIsrRequest):
            self._replies.on_sent()
        self._links.send(broker_id, request)

    async def _store_all(self, transactions: Sequence[Sequence[Operation]]) -> list[StoreError | None]:
        """Stores independent transactions together. Raises what is not the store's refusal of one of them."""
        errors: list[StoreError | None] = []
        stored = (self._store.multi(each) for each in transactions)
        for outcome in await asyncio.gather(*stored, return_exceptions=True):
            if isinstance(outcome, BaseException) and not isinstance(outcome, StoreError):
                raise outcome
            errors.append(outcome if isinstance(outcome, StoreError) else None)
        return errors

    def _start_timer(self, delay_s: float, change: MakeChange) -> None:
        machine = self._machine

        async def run() -> None:
            if self._machine is machine:
                await self._feed(News(change))

        def due() -> None:
            self._timers.discard(timer)
            self.work.add(Activity.AUTO_LEADER_BALANCE, run)

        timer = asyncio.get_running_loop().call_later(delay_s, due)
        self._timers.add(timer)

    def _stop_timers(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def _on_answer(
        self, broker_id: BrokerId, request: ControlRequest, response: ControlResponse | None
    ) -> None:
        if self._machine is not None:
            activity = activity_of_answer(request)
            self.work.add(activity, lambda: self._feed(Replied(broker_id, request, response)))
        if broker_id == self._broker_id and not isinstance(request, LeaderAndIsrRequest):
            self._replies.on_answered()

    async def _elect(self, unclean: Collection[BrokerId] = ()) -> list[asyncio.Future[Any]]:
        """Returns what this broker still waits for if it has taken over."""
        if self._is_closed or self._is_away:
            return []
        node = await self._store.exists(CONTROLLER, self._on_controller_node)
        if self._machine is not None:
            if node is not None and node.ephemeral_owner == self._store.session_id:
                return []
            self._resign(NotController("another broker has become the controller"))
        claim = None if node is not None else await elect(self._store, self._broker_id, self._clock)
        if claim is None:
            log.info("Another broker is the controller")
            return []
        log.info("Broker %d is the controller in epoch %d", self._broker_id, claim.controller_epoch)
        try:
            return [await self._take_over(claim, unclean)]
        except (KafkaError, StoreError):
            self._machine = None
            raise

    async def _take_over(self, claim: Claim, unclean: Collection[BrokerId]) -> asyncio.Future[Any]:
        self._changed.clear()
        snapshot = await read_cluster(
            self._store, self._on_change, watches_topics=self._settings.current.uses_zookeeper
        )
        self._watched_topics = {*snapshot.topics, *snapshot.unreadable}
        image = MetadataImage(
            cluster_id=self._cluster_id,
            controller_id=self._broker_id,
            controller_epoch=claim.controller_epoch,
        )
        self._machine = ControllerMachine(
            ControllerState(claim, self._settings, self._rng, image, self.stats)
        )
        ticket, reply = self._replies.take_ticket()
        # Nobody may be waiting for it.
        reply.add_done_callback(lambda reply: reply.exception())
        await self._feed(Asked(ticket, TakeOver(snapshot, unclean)), ticket)
        if reply.done():
            # It has failed, or there was nothing to wait for.
            reply.result()
        return reply

    def _resign(self, reason: KafkaError) -> None:
        if not self._is_closed:
            log.warning("This broker is no longer the controller: %s", reason)
        self._machine = None
        self._stop_timers()
        self._links.connect({})
        self._replies.refuse_all(reason)

    async def _leave_office(self) -> None:
        """A controller that cannot go on lets another one be elected, perhaps this broker again."""
        if self._machine is not None or self._is_closed:
            return
        try:
            await withdraw(self._store)
            await self._elect()
        except (KafkaError, StoreError) as error:
            self._try_again_later(error)

    def _try_again_later(self, error: Exception) -> None:
        """After an election that failed: its node may be there, and keep all brokers from being elected."""
        log.error("This broker cannot become the controller: %s", error)
        if self._retry is not None:
            self._retry.cancel()
        # In its next session the broker takes part in an election anyway.
        if self._settings.current.is_in_cluster and not isinstance(error, SessionExpired):
            add, leave = self.work.add, self._leave_office
            self._retry = asyncio.get_running_loop().call_later(
                RETRY_S, add, Activity.CONTROLLER_CHANGE, leave
            )

    def _on_session(self, state: SessionState) -> None:
        """With its session the broker has lost its registration, and its office."""
        if state in (SessionState.EXPIRED, SessionState.CLOSED) and not self._is_closed:
            # Nothing that happened in the last session leads to an election in the next one: `rejoin` does.
            self._is_away = True
            self.work.add(Activity.CONTROLLER_CHANGE, self._lose_session, is_urgent=True)

    async def _lose_session(self) -> None:
        if self._machine is not None:
            self._resign(NotController("the session with the store is over"))

    def _on_controller_node(self, event: WatchEvent) -> None:
        """The node of the controller has gone, or come, or changed."""
        if not self._is_closed:
            self.work.add(Activity.CONTROLLER_CHANGE, self._follow_controller)

    async def _follow_controller(self) -> None:
        try:
            await self._elect()
        except (KafkaError, StoreError) as error:
            self._try_again_later(error)

    def _on_change(self, event: WatchEvent) -> None:
        """Brokers, topics, marks, notices, or the nodes of older tools have changed."""
        path = event.path
        if path.startswith(BROKER_IDS):
            # The node of a broker, or the list of all.
            path = BROKER_IDS
        if path not in self._changed:
            self._changed.add(path)
            self.work.add(activity_of_change(path), lambda: self._follow(path))

    async def _follow(self, path: str) -> None:
        self._changed.discard(path)
        if self._machine is None:
            return
        try:
            await self._read(path)
        except StoreUnavailable as error:
            if not self._settings.current.is_in_cluster:
                raise
            # It would not hear of the next change either.
            self._resign(as_kafka_error(error))
            self.work.add(Activity.CONTROLLER_CHANGE, self._leave_office)

    async def _read(self, path: str) -> None:
        match path:
            case _ if path == BROKER_IDS:
                await self._feed(BrokersChanged(await registered_brokers(self._store, self._on_change)))
            case _ if path == TOPICS:
                names, _ = await self._store.children(TOPICS, self._on_change)
                await self._feed(TopicsListed(names))
                if self._settings.current.uses_zookeeper:
                    await self._watch_topics(names)
            case _:
                change = await read_change(self._store, path, self._on_change)
                if change is not None:
                    await self._feed(News(change))

    async def _watch_topics(self, names: Collection[str]) -> None:
        """Older tools raise the number of partitions in the node of a topic."""
        self._watched_topics.intersection_update(names)
        new = [name for name in names if name not in self._watched_topics]
        if new:
            self._watched_topics.update(new)
            change = await read_partition_counts(self._store, new, self._on_change)
            if change is not None:
                await self._feed(News(change))

    async def _close(self) -> None:
        self._refusal = NotController("the broker is stopping")
        await self._feed(Closing())
        self._stop_timers()
        self._replies.release_all()
        self._machine = None
