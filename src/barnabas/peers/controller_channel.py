"""Requests of this broker to the controller, which may change meanwhile.

A request goes to the broker that the metadata names as the controller. While there is none, it cannot be reached, or
it answers that it is not the controller, the request is repeated with a short back-off, until its time is over.
"""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop
from collections.abc import Callable
from typing import Any, Final

from barnabas.errors import NetworkException, NotController, RequestTimedOut
from barnabas.model import BrokerId
from barnabas.peers.peers import CONTROLLER, Peers
from barnabas.protocol.message import Message
from barnabas.protocol.messages.create_topics_response import CreateTopicsResponse

RETRY_MS: Final = 100
# A controller that stays silent for so long is asked again on another connection.
REQUEST_TIMEOUT_MS: Final = 30_000


class ControllerChannel:
    def __init__(
        self,
        peers: Peers,
        find_controller: Callable[[], BrokerId | None],
        loop: AbstractEventLoop,
        *,
        request_timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> None:
        """`find_controller` returns the id of the controller, as far as this broker knows it."""
        self._peers = peers
        self._find_controller = find_controller
        self._loop = loop
        self._request_timeout_ms = request_timeout_ms

    async def ask(
        self, api_name: str, request: Message, *, timeout_ms: float, version: int | None = None
    ) -> Any:
        """The answer of the controller. Other errors than NOT_CONTROLLER are in the answer, for the caller.

        Raises RequestTimedOut if there is no answer in time, and UnsupportedVersion. The controller may have carried
        out the request more than once.
        """
        deadline_s = self._loop.time() + timeout_ms / 1000
        while True:
            left_ms = (deadline_s - self._loop.time()) * 1000
            try:
                return await self._ask_once(
                    api_name, request, version, min(left_ms, self._request_timeout_ms)
                )
            except (NetworkException, NotController, RequestTimedOut) as error:
                left_ms = (deadline_s - self._loop.time()) * 1000
                if left_ms <= RETRY_MS:
                    raise RequestTimedOut(
                        f"the controller did not answer a {api_name} request within {round(timeout_ms)} ms: {error}"
                    ) from error
            await asyncio.sleep(RETRY_MS / 1000)

    async def _ask_once(self, api_name: str, request: Message, version: int | None, timeout_ms: float) -> Any:
        controller = self._find_controller()
        if controller is None:
            raise NotController("no controller is known")
        link = self._peers.link(controller, CONTROLLER)
        answer = await link.ask(api_name, request, version=version, timeout_ms=timeout_ms)
        if _says_not_controller(answer):
            raise NotController(f"broker {controller} is not the controller")
        return answer


def _says_not_controller(answer: Any) -> bool:
    if getattr(answer, "error_code", 0) == NotController.code:
        return True
    # CreateTopics has an error for each topic.
    topics = answer.topics if isinstance(answer, CreateTopicsResponse) else ()
    return any(each.error_code == NotController.code for each in topics)
