"""The controller as a machine: events in, effects out. It does no IO and has no clock.

Changes have their turn one after the other, and each runs to its end. A change whose write is refused because another
broker has become the controller ends this machine: it resigns, and refuses everything that waits or comes later.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Any, Final

from barnabas.coordination.controller import creation, deletion, leadership, takeover
from barnabas.coordination.controller.events import (
    WITH_RESULT,
    AdoptTopics,
    AlterReassignments,
    Asked,
    BrokersChanged,
    Closing,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    Effect,
    ElectLeaders,
    Event,
    News,
    NodesRead,
    Replied,
    Reply,
    Request,
    Resign,
    Result,
    Stored,
    StoredAll,
    StoreRefused,
    TakeOver,
    TopicsListed,
    TopicsRead,
    TreeRead,
)
from barnabas.coordination.controller.state import Change, ControllerState
from barnabas.coordination.metadata.store_errors import as_kafka_error
from barnabas.coordination.store.contract import StoreError
from barnabas.errors import NONE, KafkaError, KafkaStorageError, NotController, UnknownServerError
from barnabas.model import BrokerId
from barnabas.protocol.messages.leader_and_isr_request import LeaderAndIsrRequest
from barnabas.protocol.messages.leader_and_isr_response import LeaderAndIsrResponse
from barnabas.protocol.messages.stop_replica_request import StopReplicaRequest
from barnabas.protocol.messages.stop_replica_response import StopReplicaResponse

log = logging.getLogger(__name__)

# Changes without a requester.
_NO_TICKET: Final = -1


class ControllerMachine:
    def __init__(self, state: ControllerState) -> None:
        self.state = state
        self._waiting: deque[tuple[int, Change[Any]]] = deque()
        self._ticket = _NO_TICKET
        # The change under way: it waits for the result of its last effect.
        self._change: Change[Any] | None = None
        # Requests that wait for the answers of brokers.
        self._deferred: list[tuple[int, deletion.Deferred]] = []

    def handle(self, event: Event) -> list[Effect]:
        """The effects to carry out now, in order. The last of the effects may be one with a result."""
        effects: list[Effect] = []
        match event:
            case Stored() | StoredAll() | StoreRefused() | TopicsRead() | NodesRead() | TreeRead():
                assert self._change is not None, event
                if self._advance(event, effects):
                    return effects
            case Asked(ticket, request):
                self._waiting.append((ticket, _change(self.state, request)))
            case News(change):
                self._waiting.append((_NO_TICKET, change(self.state)))
            case Replied():
                answer = _answer(self.state, event)
                if answer is not None:
                    self._waiting.append((_NO_TICKET, answer))
            case BrokersChanged():
                self._waiting.append((_NO_TICKET, leadership.change_brokers(self.state, event)))
            case TopicsListed(names):
                self._waiting.append((_NO_TICKET, creation.take_in_topics(self.state, list(names))))
            case Closing():
                self.state.lost = self.state.lost or NotController("the broker is stopping")
        self._refuse_deferred(effects)
        while self._change is None and self._waiting:
            self._ticket, self._change = self._waiting.popleft()
            if self.state.lost is not None:
                self._change.close()
                self._end(self.state.lost, effects)
            elif self._advance(None, effects):
                break
        return effects

    def _advance(self, result: Result | None, effects: list[Effect]) -> bool:
        """Runs the change until it needs a result, which is True, or ends."""
        assert self._change is not None
        outcome: Any
        try:
            while True:
                # The first value that a generator gets has to be None, and no effect without a result gets another.
                effect = self._change.send(result)  # type: ignore[arg-type]
                effects.append(effect)
                if isinstance(effect, WITH_RESULT):
                    return True
                result = None
        except StopIteration as end:
            outcome = end.value
        except KafkaError as error:
            outcome = error
        except StoreError as error:
            outcome = as_kafka_error(error)
        except Exception:
            log.exception("A change of the cluster failed")
            outcome = UnknownServerError("a change of the cluster failed")
        was_lost = self.state.lost
        self._end(outcome, effects)
        for follow_up in reversed(self.state.follow_ups):
            self._waiting.appendleft((_NO_TICKET, follow_up(self.state)))
        self.state.follow_ups.clear()
        self._settle(effects)
        if was_lost is not None:
            self._refuse_deferred(effects)
            effects.append(Resign(was_lost))
        return False

    def _settle(self, effects: list[Effect]) -> None:
        """Replies to requests for which nothing has to happen any more."""
        waiting = self._deferred
        self._deferred = []
        for ticket, deferred in waiting:
            if deletion.settled(self.state, deferred):
                effects.append(Reply(ticket, deletion.outcome_of(self.state, deferred)))
            else:
                self._deferred.append((ticket, deferred))

    def _refuse_deferred(self, effects: list[Effect]) -> None:
        lost = self.state.lost
        if lost is not None:
            effects += [Reply(ticket, lost) for ticket, _ in self._deferred]
            self._deferred.clear()

    def _end(self, outcome: Any, effects: list[Effect]) -> None:
        if isinstance(outcome, deletion.Deferred):
            if self._ticket != _NO_TICKET:
                self._deferred.append((self._ticket, outcome))
        elif self._ticket != _NO_TICKET:
            effects.append(Reply(self._ticket, outcome))
        elif isinstance(outcome, KafkaError):
            log.error("The controller could not follow a change of the cluster: %s", outcome)
        self._ticket, self._change = _NO_TICKET, None


def _change(state: ControllerState, request: Request) -> Change[Any]:
    match request:
        case TakeOver():
            return takeover.take_over(state, request)
        case CreateTopics():
            return creation.create_topics(state, request)
        case AdoptTopics():
            return creation.adopt_topics(state, request)
        case DeleteTopics():
            return deletion.delete_topics(state, request)
        case CreatePartitions():
            return creation.create_partitions(state, request)
        case ElectLeaders():
            return leadership.elect_leaders(state, request)
        case AlterReassignments():
            from barnabas.coordination.controller import reassignment

            return reassignment.alter_reassignments(state, request)
    return request(state)


def _answer(state: ControllerState, reply: Replied) -> Change[None] | None:
    """What follows from the answer of a broker, if anything.

    Answers to an earlier controller do not count, nor those of an earlier registration: the broker was asked again.
    """
    broker_id, request, response = reply.broker_id, reply.request, reply.response
    broker = state.image.brokers.get(broker_id)
    if request.controller_epoch != state.claim.controller_epoch or (
        broker is not None and broker.epoch != request.broker_epoch
    ):
        return None
    if isinstance(request, StopReplicaRequest):
        if not state.deleting:
            return None
        assert response is None or isinstance(response, StopReplicaResponse)
        return deletion.take_stopped(state, broker_id, request, response)
    if isinstance(request, LeaderAndIsrRequest):
        if not isinstance(response, LeaderAndIsrResponse) or not _matters(state, broker_id, response):
            return None
        from barnabas.coordination.controller import broker_requests

        return broker_requests.take_roles_answer(state, broker_id, request, response)
    if response is not None and response.error_code != NONE:
        log.error("Broker %d has refused metadata with error %d", broker_id, response.error_code)
    return None


def _matters(state: ControllerState, broker_id: BrokerId, response: LeaderAndIsrResponse) -> bool:
    """Whether a broker has refused its roles, or a log directory has failed or had failed."""
    if response.error_code != NONE or broker_id in state.offline_replicas:
        return True
    return any(
        each.error_code == KafkaStorageError.code
        for errors in (response.partition_errors, *(topic.partition_errors for topic in response.topics))
        for each in errors
    )
