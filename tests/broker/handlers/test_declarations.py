"""What each module of an API declares, and that the type checker rejects a handler that does not answer."""

from __future__ import annotations

import pytest

from barnabas.broker.broker import Broker
from barnabas.broker.handlers.handler import Handler, coroutine_handler, load_handler
from barnabas.broker.requests.exchange import Answer, AnyExchange, Exchange
from barnabas.broker.requests.routes import BROKER_ROUTES, ROUTES, Route
from barnabas.errors import ClusterAuthorizationFailed
from barnabas.protocol.codec import decode, encode
from barnabas.protocol.messages.heartbeat_request import HeartbeatRequest
from barnabas.protocol.messages.heartbeat_response import HeartbeatResponse
from barnabas.protocol.messages.leave_group_request import LeaveGroupRequest
from barnabas.protocol.messages.leave_group_response import LeaveGroupResponse
from barnabas.security.acls import CLUSTER_ACTION


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_each_route_leads_to_a_handler_of_its_messages(route: Route) -> None:
    handler = load_handler(route.module)
    assert handler.request_class is route.api.request_class()
    assert handler.response_class is route.api.response_class()


WHOLE = [route for route in (*ROUTES, *BROKER_ROUTES) if route.access.cluster_operation is not None]


@pytest.mark.parametrize("route", WHOLE, ids=lambda route: route.name)
def test_a_request_that_needs_a_permission_can_be_refused_in_every_version(route: Route) -> None:
    handler = load_handler(route.module)
    error = ClusterAuthorizationFailed("no permission")
    for version in range(route.first_version, route.last_version + 1):
        response = handler.refused(handler.request_class(), error, version)
        decoded = decode(handler.response_class, encode(response, version), version)
        assert type(decoded) is handler.response_class


def test_only_brokers_may_send_requests_of_brokers() -> None:
    assert {route.access.cluster_operation for route in BROKER_ROUTES} == {CLUSTER_ACTION}


def answers(broker: Broker, exchange: AnyExchange, request: HeartbeatRequest) -> HeartbeatResponse:
    return HeartbeatResponse()


def parks(
    broker: Broker, exchange: Exchange[HeartbeatResponse], request: HeartbeatRequest
) -> Answer[HeartbeatResponse]:
    return exchange.park()


async def waits(broker: Broker, exchange: AnyExchange, request: HeartbeatRequest) -> HeartbeatResponse:
    return HeartbeatResponse()


def forgets(broker: Broker, exchange: AnyExchange, request: HeartbeatRequest) -> None:
    pass


def may_forget(broker: Broker, exchange: AnyExchange, request: HeartbeatRequest) -> HeartbeatResponse | None:
    return None


async def forgets_later(broker: Broker, exchange: AnyExchange, request: HeartbeatRequest) -> None:
    pass


def takes_another(broker: Broker, exchange: AnyExchange, request: LeaveGroupRequest) -> HeartbeatResponse:
    return HeartbeatResponse()


def answers_another(broker: Broker, exchange: AnyExchange, request: HeartbeatRequest) -> LeaveGroupResponse:
    return LeaveGroupResponse()


def parks_another(
    broker: Broker, exchange: Exchange[LeaveGroupResponse], request: HeartbeatRequest
) -> Answer[HeartbeatResponse]:
    return HeartbeatResponse()


def test_the_type_checker_rejects_what_is_no_handler() -> None:
    """mypy checks this file: an `ignore` below that ignores nothing is an error of its own."""
    Handler(HeartbeatRequest, HeartbeatResponse, answers)
    Handler(HeartbeatRequest, HeartbeatResponse, parks)
    coroutine_handler(HeartbeatRequest, HeartbeatResponse, waits)
    Handler(HeartbeatRequest, HeartbeatResponse, forgets)  # type: ignore[arg-type]
    Handler(HeartbeatRequest, HeartbeatResponse, may_forget)  # type: ignore[arg-type]
    Handler(HeartbeatRequest, HeartbeatResponse, waits)  # type: ignore[arg-type]
    coroutine_handler(HeartbeatRequest, HeartbeatResponse, forgets_later)  # type: ignore[arg-type]
    Handler(HeartbeatRequest, HeartbeatResponse, takes_another)  # type: ignore[arg-type]
    Handler(HeartbeatRequest, HeartbeatResponse, answers_another)  # type: ignore[arg-type]
    Handler(HeartbeatRequest, HeartbeatResponse, parks_another)  # type: ignore[arg-type]
