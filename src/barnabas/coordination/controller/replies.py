"""Replies to those who have asked the controller for something.

A client may use what it has asked for as soon as it has the reply. So a reply waits until the broker in this process
has carried out the requests that the controller has sent to it before. Roles do not count, since their answers wait for
logs: metadata follow them, and have answers when the roles are taken.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from barnabas.errors import KafkaError


class Replies:
    def __init__(self) -> None:
        self._tickets: dict[int, asyncio.Future[Any]] = {}
        self._last_ticket = 0
        # Those whose replies do not wait for this broker.
        self._urgent: set[int] = set()
        self._sent = 0
        self._answered = 0
        self._held: deque[tuple[int, int, Any]] = deque()

    def take_ticket(self, *, is_urgent: bool = False) -> tuple[int, asyncio.Future[Any]]:
        self._last_ticket += 1
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._tickets[self._last_ticket] = reply
        if is_urgent:
            self._urgent.add(self._last_ticket)
        return self._last_ticket, reply

    def on_sent(self) -> None:
        """The controller has sent a request to the broker in this process."""
        self._sent += 1

    def on_answered(self) -> None:
        self._answered += 1
        self._release()

    def hold(self, ticket: int, outcome: Any) -> None:
        """Replies in its turn; with an error at once."""
        if ticket in self._urgent or isinstance(outcome, KafkaError):
            self.reply(ticket, outcome)
        else:
            self._held.append((self._sent, ticket, outcome))
            self._release()

    def reply(self, ticket: int, outcome: Any) -> None:
        self._urgent.discard(ticket)
        reply = self._tickets.pop(ticket, None)
        # A requester may have been cancelled in the meantime, or refused.
        if reply is not None and not reply.done():
            if isinstance(outcome, KafkaError):
                reply.set_exception(outcome)
            else:
                reply.set_result(outcome)

    def release_all(self) -> None:
        """Nothing is waited for any more."""
        self._release(at_once=True)

    def refuse_all(self, reason: KafkaError) -> None:
        self.release_all()
        for ticket in list(self._tickets):
            self.reply(ticket, reason)

    def _release(self, *, at_once: bool = False) -> None:
        while self._held and (at_once or self._held[0][0] <= self._answered):
            _, ticket, outcome = self._held.popleft()
            self.reply(ticket, outcome)
