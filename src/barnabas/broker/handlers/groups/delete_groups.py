"""DeleteGroups, versions 0 to 2: deletes groups without members, with their offsets.

The groups of one request may have several coordinators. The response waits for all of them. Many groups are deleted in
turns, some at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from barnabas.broker.broker import Broker
from barnabas.broker.coordinators.group_shell import GroupShell
from barnabas.broker.handlers.groups.asking import caller_of
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.handlers.permissions import authorize
from barnabas.broker.requests.exchange import Answer, Exchange, Parked
from barnabas.broker.waiting.turns import STEP
from barnabas.errors import KafkaError
from barnabas.protocol.messages.delete_groups_request import DeleteGroupsRequest
from barnabas.protocol.messages.delete_groups_response import DeletableGroupResult, DeleteGroupsResponse
from barnabas.security.acls import DELETE, GROUP

_OFFSETS_AT_ONCE: Final = 1_000


class _Gathered:
    """Gathers the results of the coordinators, and sends one response in the order of the request."""

    def __init__(self, parked: Parked[DeleteGroupsResponse], group_ids: list[str]) -> None:
        self._parked = parked
        self._group_ids = group_ids
        self._results: dict[str, DeletableGroupResult] = {}

    def add(self, response: DeleteGroupsResponse) -> None:
        self._results.update((result.group_id, result) for result in response.results)
        if len(self._results) == len(self._group_ids):
            self._parked.answer(
                DeleteGroupsResponse(results=[self._results[group_id] for group_id in self._group_ids])
            )

    def refuse(self, group_ids: Iterable[str], error: KafkaError) -> None:
        results = [DeletableGroupResult(group_id=each, error_code=error.code) for each in group_ids]
        self.add(DeleteGroupsResponse(results=results))


class _Part(NamedTuple):
    shell: GroupShell
    group_ids: list[str]


def handle(
    broker: Broker, exchange: Exchange[DeleteGroupsResponse], request: DeleteGroupsRequest
) -> Answer[DeleteGroupsResponse]:
    group_ids = list(dict.fromkeys(request.groups_names))
    if not group_ids:
        return DeleteGroupsResponse()
    parked = exchange.park()
    gathered = _Gathered(parked, group_ids)
    by_shell: dict[GroupShell, list[str]] = {}
    for group_id in group_ids:
        try:
            authorize(broker, exchange, DELETE, GROUP, group_id)
            by_shell.setdefault(broker.groups.shell_of(group_id), []).append(group_id)
        except KafkaError as error:
            gathered.refuse([group_id], error)

    def delete(part: _Part) -> None:
        try:
            # It may have been unloaded since.
            part.shell.check_ready()
        except KafkaError as error:
            gathered.refuse(part.group_ids, error)
            return
        caller = caller_of(exchange, gathered.add)
        part.shell.carry_out(part.shell.coordinator.delete_groups(caller, part.group_ids))

    parts = [part for shell, names in by_shell.items() for part in _parts(shell, names)]
    if len(parts) == len(by_shell):
        return exchange.answer_in_turns(broker.turns, parts, delete, lambda _: parked)
    return exchange.answer_from(broker.turns.map(parts, delete, lambda _: parked))


def _parts(shell: GroupShell, group_ids: Iterable[str]) -> Iterator[_Part]:
    """Groups that are deleted together: some, and fewer if they have many offsets, each of which is a record."""
    part: list[str] = []
    offsets = 0
    for group_id in group_ids:
        more = shell.coordinator.offsets.count(group_id)
        if part and (len(part) == STEP or offsets + more > _OFFSETS_AT_ONCE):
            yield _Part(shell, part)
            part, offsets = [], 0
        part.append(group_id)
        offsets += more
    if part:
        yield _Part(shell, part)


HANDLER: Final = Handler(DeleteGroupsRequest, DeleteGroupsResponse, handle)
