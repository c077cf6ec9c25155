"""The requests of the controller to this broker: roles, the end of roles, metadata.

They come over the network, or from a controller in this process without being encoded; it is the same code. A
controller that has been replaced, and a request for an earlier registration of this broker, are refused.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.replication.log_dir_mover import LogDirMover
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.waiting.background import Background
from barnabas.coordination.controller.events import ControlRequest
from barnabas.coordination.controller.links import ControlResponse, OnAnswer
from barnabas.coordination.metadata.image import BrokerImage
from barnabas.coordination.metadata.membership import Registration
from barnabas.coordination.metadata.updates import MetadataUpdates
from barnabas.errors import NONE, FencedLeaderEpoch, KafkaStorageError, StaleBrokerEpoch, StaleControllerEpoch
from barnabas.log.manager.manager import LogManager
from barnabas.model import BrokerId, TopicPartition
from barnabas.protocol.messages.leader_and_isr_request import LeaderAndIsrRequest
from barnabas.protocol.messages.leader_and_isr_response import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from barnabas.protocol.messages.stop_replica_request import StopReplicaRequest
from barnabas.protocol.messages.stop_replica_response import StopReplicaResponse
from barnabas.protocol.messages.update_metadata_request import UpdateMetadataRequest
from barnabas.protocol.messages.update_metadata_response import UpdateMetadataResponse

if TYPE_CHECKING:
    from barnabas.broker.upkeep.control_versions import OldForm

log = logging.getLogger(__name__)


class ControlRequests:
    def __init__(
        self,
        registration: Registration,
        updates: MetadataUpdates,
        replicas: ReplicaManager,
        manager: LogManager,
        mover: LogDirMover,
        background: Background,
    ) -> None:
        self._registration = registration
        self._updates = updates
        self._replicas = replicas
        self._manager = manager
        self._mover = mover
        self._background = background

    async def carry_out(self, request: ControlRequest) -> ControlResponse:
        """The answer to LeaderAndIsr is complete after `complete_roles`. Raises StoreError."""
        if isinstance(request, LeaderAndIsrRequest):
            return await self._take_roles(request)
        if isinstance(request, UpdateMetadataRequest):
            return self.update_metadata(request)
        return await self.stop_replica(request)

    async def learn_settings(self, topics: Iterable[str]) -> None:
        """Has the settings of these topics in the metadata. Raises StoreError."""
        await self._updates.learn_settings(topics)

    async def leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        """Answers when the logs of the partitions are open. Raises StoreError if settings of a new topic are missing.

        Partitions whose log cannot be opened have the error KAFKA_STORAGE_ERROR, and the controller counts their
        replicas as offline.
        """
        response = await self._take_roles(request)
        await self.complete_roles(request, response)
        return response

    async def complete_roles(self, request: LeaderAndIsrRequest, response: LeaderAndIsrResponse) -> None:
        """Waits for the logs of the partitions, and adds the errors of those that cannot be opened."""
        if response.error_code == NONE:
            await self._replicas.opened({each.topic_name for each in request.topic_states})
            self._report_offline(request, response)

    async def _take_roles(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        code = self._refusal(request)
        if code == NONE:
            await self._updates.learn_topics(request)
            # The broker may have registered again in the meantime.
            code = self._refusal(request)
        return self._replicas.become(request) if code == NONE else _refused_roles(request, code)

    async def stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        """Answers when the logs that are to be deleted are gone.

        A log that cannot be deleted has the error KAFKA_STORAGE_ERROR, and does not keep others from it.
        """
        code = self._refusal(request)
        if code != NONE:
            return StopReplicaResponse(error_code=code)
        response = self._replicas.stop(request)
        if response.error_code != NONE:
            return StopReplicaResponse(error_code=response.error_code)
        deleted = {
            TopicPartition(topic.topic_name, each.partition_index)
            for topic in request.topic_states
            for each in topic.partition_states
            if each.delete_partition
        }
        # A partition that has a role of a later epoch keeps it, and its log.
        deleted -= {
            TopicPartition(each.topic_name, each.partition_index)
            for each in response.partition_errors
            if each.error_code == FencedLeaderEpoch.code
        }
        if not deleted:
            return response
        errors = await self._delete_logs(sorted(deleted))
        for each in response.partition_errors:
            key = TopicPartition(each.topic_name, each.partition_index)
            if key in deleted:
                each.error_code = errors.get(key, NONE)
        return response

    def update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        code = self._refusal(request)
        if code == NONE and not self._replicas.admit_controller(request.controller_epoch):
            code = StaleControllerEpoch.code
        if code == NONE:
            self._updates.update(request)
        return UpdateMetadataResponse(error_code=code)

    def _refusal(self, request: ControlRequest) -> int:
        # A higher epoch is possible: the controller may know of the registration before this broker does.
        if 0 <= request.broker_epoch < self._registration.epoch:
            log.info("Ignoring a request for broker epoch %d, which is over", request.broker_epoch)
            return StaleBrokerEpoch.code
        return NONE

    def _report_offline(self, request: LeaderAndIsrRequest, response: LeaderAndIsrResponse) -> None:
        for topic, errors in zip(request.topic_states, response.topics, strict=True):
            for each in errors.partition_errors:
                partition = self._replicas.find(TopicPartition(topic.topic_name, each.partition_index))
                if each.error_code == NONE and partition is not None and partition.is_offline:
                    each.error_code = KafkaStorageError.code

    async def _delete_logs(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """The error codes of the partitions whose log is not deleted."""
        await self._replicas.opened({each.topic for each in partitions})
        await self._replicas.released(partitions)
        await self._mover.cancel(partitions)
        # Another controller may have given a partition a role in the meantime: that one uses the log.
        errors = {
            each: FencedLeaderEpoch.code for each in partitions if self._replicas.find(each) is not None
        }
        unused = [each for each in partitions if each not in errors]
        failures = await self._background.run(partial(self._manager.delete_all, unused))
        for partition, error in failures.items():
            log.error("The log of %s cannot be deleted: %s", partition, error)
            errors[partition] = KafkaStorageError.code
        return errors


def _refused_roles(request: LeaderAndIsrRequest, code: int) -> LeaderAndIsrResponse:
    """Every partition has the error of the request."""
    return LeaderAndIsrResponse(
        error_code=code,
        topics=[
            LeaderAndIsrTopicError(
                topic_id=topic.topic_id,
                partition_errors=[
                    LeaderAndIsrPartitionError(partition_index=each.partition_index, error_code=code)
                    for each in topic.partition_states
                ],
            )
            for topic in request.topic_states
        ],
    )


class LocalLinks:
    """The controller's ways to brokers, on a cluster of one broker: only to itself.

    A request does not wait for the logs that the one before it opens. Only the answer does.
    """

    def __init__(self, broker_id: BrokerId, requests: ControlRequests) -> None:
        self._broker_id = broker_id
        self._requests = requests
        self._on_answer: OnAnswer | None = None
        # At old levels of a cluster, requests have the form in which other brokers get them.
        self.old_form: OldForm | None = None
        # A task runs while there is any.
        self._waiting: deque[tuple[BrokerId, ControlRequest]] = deque()
        self._worker: asyncio.Task[None] | None = None
        self._opening: set[asyncio.Task[None]] = set()

    def listen(self, on_answer: OnAnswer) -> None:
        self._on_answer = on_answer

    def connect(self, brokers: Mapping[BrokerId, BrokerImage]) -> None:
        pass

    def send(self, broker_id: BrokerId, request: ControlRequest) -> None:
        self._waiting.append((broker_id, request))
        if self._worker is None:
            self._worker = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        while self._worker is not None:
            await asyncio.wait([self._worker])
        if self._opening:
            await asyncio.wait(self._opening)

    async def _run(self) -> None:
        try:
            while self._waiting:
                broker_id, request = self._waiting.popleft()
                response: ControlResponse | None = None
                if broker_id != self._broker_id:
                    log.warning("There is no way to broker %d", broker_id)
                else:
                    try:
                        if self.old_form is not None:
                            request = self.old_form.received(request)
                        response = await self._requests.carry_out(request)
                    except Exception:
                        # The change is stored, and other requests have to follow.
                        log.exception("This broker has failed to carry out %s", type(request).__name__)
                if isinstance(request, LeaderAndIsrRequest) and isinstance(response, LeaderAndIsrResponse):
                    opening = self._complete(broker_id, request, response)
                    task = asyncio.get_running_loop().create_task(opening)
                    self._opening.add(task)
                    task.add_done_callback(self._opening.discard)
                else:
                    self._answer(broker_id, request, response)
        finally:
            self._worker = None

    async def _complete(
        self, broker_id: BrokerId, request: LeaderAndIsrRequest, response: LeaderAndIsrResponse
    ) -> None:
        await self._requests.complete_roles(request, response)
        self._answer(broker_id, request, response)

    def _answer(self, broker_id: BrokerId, request: ControlRequest, response: ControlResponse | None) -> None:
        if self._on_answer is not None:
            if self.old_form is not None:
                response = self.old_form.answered(request, response)
            self._on_answer(broker_id, request, response)
