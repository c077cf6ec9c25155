"""DeleteGroups, versions 0 to 2: deletes groups without members, with their offsets.

The groups of one request may have several coordinators. The response waits for all of them.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.coordinators.group_shell import GroupShell
from barnabas.broker.handlers.groups.asking import caller_of
from barnabas.broker.handlers.handler import Handler
from barnabas.broker.requests.exchange import Answer, Exchange, Parked
from barnabas.errors import KafkaError
from barnabas.protocol.messages.delete_groups_request import DeleteGroupsRequest
from barnabas.protocol.messages.delete_groups_response import DeletableGroupResult, DeleteGroupsResponse


class _Gathered:
    """Gathers the answers of the coordinators, and sends one response in the order of the request."""

    def __init__(self, parked: Parked[DeleteGroupsResponse], group_ids: list[str]) -> None:
        self._parked = parked
        self._group_ids = group_ids
        self._results: dict[str, DeletableGroupResult] = {}

    def add(self, results: list[DeletableGroupResult]) -> None:
        self._results.update((result.group_id, result) for result in results)
        if len(self._results) == len(self._group_ids):
            self._parked.answer(
                DeleteGroupsResponse(results=[self._results[group_id] for group_id in self._group_ids])
            )

    def add_response(self, response: DeleteGroupsResponse) -> None:
        self.add(response.results)


def handle(
    broker: Broker, exchange: Exchange[DeleteGroupsResponse], request: DeleteGroupsRequest
) -> Answer[DeleteGroupsResponse]:
    group_ids = list(dict.fromkeys(request.groups_names))
    if not group_ids:
        return DeleteGroupsResponse()
    parked = exchange.park()
    gathered = _Gathered(parked, group_ids)
    refused = []
    by_shell: dict[GroupShell, list[str]] = {}
    for group_id in group_ids:
        try:
            by_shell.setdefault(broker.groups.shell_of(group_id), []).append(group_id)
        except KafkaError as error:
            refused.append(DeletableGroupResult(group_id=group_id, error_code=error.code))
    if refused:
        gathered.add(refused)
    for shell, names in by_shell.items():
        caller = caller_of(exchange, gathered.add_response)
        shell.carry_out(shell.coordinator.delete_groups(caller, names))
    return parked


HANDLER: Final = Handler(DeleteGroupsRequest, DeleteGroupsResponse, handle)
