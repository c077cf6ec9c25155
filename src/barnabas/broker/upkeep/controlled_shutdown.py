"""Controlled shutdown: before a broker stops, it asks the controller to move its leaders to other brokers.

The controller also sends the broker the end of its roles as a follower, so the broker must still serve requests. A
broker that gets no approval stops all the same, and its partitions have no leader until the controller misses it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from barnabas.config.broker_config import BrokerConfig
from barnabas.errors import NONE, KafkaError, error_for_code
from barnabas.model import BrokerId
from barnabas.peers.peers import CONTROLLER, Peers
from barnabas.protocol.messages.controlled_shutdown_request import ControlledShutdownRequest
from barnabas.protocol.messages.controlled_shutdown_response import ControlledShutdownResponse

log = logging.getLogger(__name__)

POLL_MS: Final = 50


class ControlledShutdown:
    def __init__(
        self,
        peers: Peers,
        find_controller: Callable[[], BrokerId | None],
        broker_id: BrokerId,
        broker_epoch: Callable[[], int],
    ) -> None:
        self._peers = peers
        self._find_controller = find_controller
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch

    async def run(self, config: BrokerConfig) -> bool:
        """Asks until the controller approves, at most `controlled.shutdown.max.retries` times. Raises nothing."""
        if not config.controlled_shutdown_enable:
            return False
        log.info("Starting controlled shutdown")
        for tries_left in reversed(range(config.controlled_shutdown_max_retries)):
            controller = self._find_controller()
            if await self._is_approved_by(controller, config.controller_socket_timeout_ms):
                log.info("The controller has approved the shutdown")
                return True
            if tries_left:
                await self._wait(controller, config.controlled_shutdown_retry_backoff_ms)
        log.warning(
            "Stopping without the approval of the controller: partitions may be without a leader for a while"
        )
        return False

    async def _is_approved_by(self, controller: BrokerId | None, timeout_ms: int) -> bool:
        if controller is None:
            log.info("No controller is known that could approve the shutdown")
            return False
        request = ControlledShutdownRequest(broker_id=self._broker_id, broker_epoch=self._broker_epoch())
        try:
            answer: ControlledShutdownResponse = await self._peers.link(controller, CONTROLLER).ask(
                "ControlledShutdown", request, timeout_ms=timeout_ms
            )
        except KafkaError as error:
            log.warning("The controller cannot be asked for the shutdown: %s", error)
            return False
        if answer.error_code != NONE:
            log.info("The controller refuses the shutdown: %s", error_for_code(answer.error_code).name)
        elif answer.remaining_partitions:
            log.info("This broker still leads %d partitions", len(answer.remaining_partitions))
        else:
            return True
        return False

    async def _wait(self, controller: BrokerId | None, backoff_ms: int) -> None:
        """For the back-off, or until there is another controller to ask."""
        for _ in range(-(-backoff_ms // POLL_MS)):
            if self._find_controller() != controller:
                return
            await asyncio.sleep(POLL_MS / 1000)
