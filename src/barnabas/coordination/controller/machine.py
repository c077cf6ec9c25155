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
    AdoptTopics,
    AlterReassignments,
    Answered,
    Ask,
    Asked,
    BrokersChanged,
    Closing,
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
    Stored,
    StoreRefused,
    TakeOver,
    TopicsListed,
    TopicsRead,
    TreeRead,
    Write,
)
from barnabas.coordination.controller.state import Change, ControllerState
from barnabas.coordination.metadata.store_errors import as_kafka_error
from barnabas.coordination.store.contract import StoreError
from barnabas.errors import KafkaError, NotController, UnknownServerError

log = logging.getLogger(__name__)

# Changes without a requester.
_NO_TICKET: Final = -1


class ControllerMachine:
    def __init__(self, state: ControllerState) -> None:
        self._state = state
        self._waiting: deque[tuple[int, Change[Any]]] = deque()
        self._ticket = _NO_TICKET
        # The change under way: it waits for the result of its last effect.
        self._change: Change[Any] | None = None

    def handle(self, event: Event) -> list[Effect]:
        """The effects to carry out now, in order. The last of the effects may be one with a result."""
        effects: list[Effect] = []
        match event:
            case Stored() | StoreRefused() | TopicsRead() | TreeRead() | Answered():
                assert self._change is not None, event
                if self._advance(event, effects):
                    return effects
            case Asked(ticket, request):
                self._waiting.append((ticket, _change(self._state, request)))
            case BrokersChanged():
                self._waiting.append((_NO_TICKET, leadership.change_brokers(self._state, event)))
            case TopicsListed(names):
                self._waiting.append((_NO_TICKET, creation.take_in_topics(self._state, list(names))))
            case Closing():
                self._state.lost = self._state.lost or NotController("the broker is stopping")
        while self._change is None and self._waiting:
            self._ticket, self._change = self._waiting.popleft()
            if self._state.lost is not None:
                self._change.close()
                self._end(self._state.lost, effects)
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
                if isinstance(effect, (Write, ReadTopics, ReadTree, Ask)):
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
        was_lost = self._state.lost
        self._end(outcome, effects)
        if was_lost is not None:
            effects.append(Resign(was_lost))
        return False

    def _end(self, outcome: Any, effects: list[Effect]) -> None:
        if self._ticket != _NO_TICKET:
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
            return leadership.alter_reassignments(state, request)
