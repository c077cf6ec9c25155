"""The state of the controller, and the common steps of its changes.

A change is a generator: it yields effects and gets the result of each that has one. It may raise a KafkaError, which is
then the reply to its requester.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Sequence
from itertools import islice
from random import Random
from typing import Final, NamedTuple, TypeAlias, TypeVar

from barnabas.config.live_settings import LiveSettings
from barnabas.coordination.controller.events import Effect, Result, Send, StoreRefused, Write
from barnabas.coordination.controller.messages import Changed, leader_and_isr, update_metadata
from barnabas.coordination.metadata.image import MetadataImage, TopicImage
from barnabas.coordination.metadata.store_errors import as_kafka_error
from barnabas.coordination.metadata.tree import CONTROLLER_EPOCH, config_path
from barnabas.coordination.store.contract import Check, Create, MultiFailed, Operation, SessionExpired
from barnabas.errors import KafkaError, NotController

log = logging.getLogger(__name__)

T = TypeVar("T")
Change: TypeAlias = Generator[Effect, Result, T]

# A larger change is stored in parts, far below ZooKeeper's bound of 1 MiB for one transaction.
OPERATIONS_AT_ONCE: Final = 250
_TOPIC_CONFIGS: Final = config_path("topics", "")


class Claim(NamedTuple):
    """This broker controls the cluster as long as the node of the epoch has this version."""

    controller_epoch: int
    epoch_version: int


class ControllerState:
    """`image` has brokers and topics only: settings are not the controller's."""

    def __init__(self, claim: Claim, settings: LiveSettings, rng: Random, image: MetadataImage) -> None:
        self.claim = claim
        self.settings = settings
        self.rng = rng
        self.image = image
        # Topics that are marked for deletion. They are in no image any more.
        self.deleting: dict[str, TopicImage] = {}
        # Topics that have a node for their settings.
        self.configured: set[str] = set()
        # Why this broker is no longer the controller.
        self.lost: KafkaError | None = None


def commit(state: ControllerState, operations: Iterable[Operation]) -> Change[None]:
    """Stores a change in parts. Raises a KafkaError when the store refuses one; those before it are stored."""
    remaining = iter(operations)
    while batch := list(islice(remaining, OPERATIONS_AT_ONCE)):
        result = yield Write([Check(CONTROLLER_EPOCH, state.claim.epoch_version), *batch])
        if isinstance(result, StoreRefused):
            log.error("A change of the cluster could not be stored: %s", result.error)
            raise refusal(state, result)
        for each in batch:
            if isinstance(each, Create) and each.path.startswith(_TOPIC_CONFIGS):
                state.configured.add(each.path.removeprefix(_TOPIC_CONFIGS))


def refusal(state: ControllerState, refused: StoreRefused) -> KafkaError:
    error = refused.error
    if isinstance(error, MultiFailed) and error.index == 0:
        state.lost = NotController("another controller has taken over")
        return state.lost
    failure = as_kafka_error(error)
    if isinstance(error, SessionExpired):
        state.lost = failure
    return failure


def tell_brokers(
    state: ControllerState,
    changed: Sequence[Changed] = (),
    *,
    deleted: Sequence[TopicImage] = (),
    is_new: bool = False,
) -> Change[None]:
    """Roles to the replicas of these partitions, and metadata to all brokers."""
    for broker in state.image.brokers.values():
        roles = leader_and_isr(state.image, broker, changed, is_new=is_new)
        if roles is not None:
            yield Send(broker.id, roles)
        yield Send(broker.id, update_metadata(state.image, broker, changed, deleted))
