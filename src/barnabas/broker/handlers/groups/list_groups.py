"""ListGroups, versions 0 to 5: the groups that this broker coordinates.

From version 4 on a client may ask for certain states, from version 5 on for certain types. While a partition is being
loaded the list would be incomplete, and the client has to ask again.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import coroutine_handler
from barnabas.broker.handlers.permissions import Permission, denies
from barnabas.broker.requests.exchange import AnyExchange
from barnabas.errors import CoordinatorLoadInProgress, NotCoordinator
from barnabas.protocol.messages.list_groups_request import ListGroupsRequest
from barnabas.protocol.messages.list_groups_response import ListGroupsResponse
from barnabas.security.acls import DESCRIBE, GROUP


async def handle(broker: Broker, exchange: AnyExchange, request: ListGroupsRequest) -> ListGroupsResponse:
    response = ListGroupsResponse()
    turns = broker.turns
    shows_all = not denies(broker, exchange, DESCRIBE, is_logged=False)
    permission = Permission(broker, exchange, DESCRIBE, GROUP, is_logged=False)
    end_ns = turns.end_ns()
    for shell in list(broker.groups):
        try:
            shell.check_ready()
        except NotCoordinator:
            continue
        except CoordinatorLoadInProgress as error:
            return ListGroupsResponse(error_code=error.code)
        found = shell.coordinator.list_groups(request.states_filter, request.types_filter)
        response.groups += found if shows_all else [each for each in found if each.group_id in permission]
        if turns.is_over(end_ns):
            await turns.next()
            end_ns = turns.end_ns()
    return response


HANDLER: Final = coroutine_handler(ListGroupsRequest, ListGroupsResponse, handle)
