"""Every API, with and without each ACL that it needs: we answer the errors that Apache Kafka answers.

The client logs in as `User:ann`; the administrator is `User:ANONYMOUS` at a plain listener.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from barnabas.broker.requests.routes import ROUTES, Route
from barnabas.protocol.message import field_names
from barnabas.security.acls import ALLOW, CLUSTER, DENY, LITERAL, AclBinding, AclEntry, ResourcePattern
from tests.broker.acl_requests import (
    any_filter,
    bindings_of,
    create,
    delete,
    describe,
)
from tests.broker.group_requests import commit, wait_for_coordinator
from tests.broker.raw_client import RawClient
from tests.broker.record_requests import create_topic, produce
from tests.broker.running import RunningBroker
from tests.broker.transaction_requests import init_producer
from tests.peers.authorization_case import (
    BILLING,
    HIDDEN,
    ORDERS,
    OTHER_USER,
    PAYMENTS,
    REPORTS,
    Case,
    Needed,
    build,
)
from tests.peers.authorization_cases import CASES, RECORDS
from tests.peers.kafka_peer import V4, PeerUnavailable, jars
from tests.peers.secured_kafka import SecuredKafka, user_client, user_settings
from tests.waiting import wait_until

SETTINGS: Final = {
    "auto.create.topics.enable": "true",
    "delegation.token.secret.key": "of the cluster",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    # The member of a group sends no heartbeats while its group is looked at.
    "group.consumer.session.timeout.ms": "1800000",
    "group.consumer.max.session.timeout.ms": "1800000",
}
USERS: Final = ("ann", OTHER_USER)
PRINCIPAL: Final = "User:ann"
OWN_TOKEN: Final = {"renewers": [], "max_lifetime_ms": -1}
# Of each kind of resource, and of lists.
DENIED_APIS: Final = (
    "Produce",
    "Fetch",
    "Metadata",
    "ListGroups",
    "OffsetCommit",
    "InitProducerId",
    "CreateTopics",
    "DescribeAcls",
)
# Fields by which an answer names a resource.
KEYS: Final = (
    "name",
    "topic",
    "topic_name",
    "group_id",
    "transactional_id",
    "key",
    "index",
    "partition",
    "partition_index",
    "resource_name",
    "user",
)
# Lists that contain what a client may see.
SEEN: Final = {
    "DescribeDelegationToken": "tokens",
    "ListGroups": "groups",
    "ListTransactions": "transaction_states",
    "Metadata": "topics",
}


class Side(NamedTuple):
    """A broker, with an administrator and the client that is tested."""

    admin: RawClient
    client: RawClient
    other: RawClient

    def grant(self, needed: Sequence[Needed], denied: Sequence[Needed] = ()) -> None:
        """Gives the client exactly these permissions."""
        selected: dict[str, Any] = {"principal_filter": PRINCIPAL, "host_filter": "*"}
        [deleted] = delete(self.admin, any_filter(**selected))
        assert deleted.error_code == 0, deleted
        bindings = {
            AclBinding(
                ResourcePattern(each.resource_type, each.name, LITERAL),
                AclEntry(PRINCIPAL, "*", each.operation, permission),
            )
            for permission, wanted in ((ALLOW, needed), (DENY, denied))
            for each in wanted
        }
        for result in create(self.admin, *bindings) if bindings else ():
            assert result.error_code == 0, result
        # A broker of Kafka learns of a change after the controller has answered.
        wait_until(lambda: bindings_of(describe(self.admin, **selected)) == bindings)

    def prepare(self) -> None:
        for name in (ORDERS, "secret"):
            create_topic(self.admin, name)
            wait_until(lambda name=name: produce(self.admin, name, RECORDS).error_code == 0)  # type: ignore[misc]
        wait_for_coordinator(self.admin, BILLING)
        commit(self.admin, BILLING, {(ORDERS, 0): 1, ("secret", 0): 1})
        init_producer(self.admin, PAYMENTS)
        self._join_reports()
        assert (
            self.other.ask(
                "CreateDelegationToken", 3, build("CreateDelegationTokenRequest", OWN_TOKEN)
            ).error_code
            == 0
        )

    def _join_reports(self) -> None:
        fields = {
            "group_id": REPORTS,
            "rebalance_timeout_ms": 60_000,
            "subscribed_topic_names": [ORDERS],
            "topic_partitions": [],
        }
        wait_for_coordinator(self.admin, REPORTS)
        member = self.admin.ask("ConsumerGroupHeartbeat", 0, build("ConsumerGroupHeartbeatRequest", fields))
        assert member.error_code == 0, member
        described = build("ConsumerGroupDescribeRequest", {"group_ids": [REPORTS]})

        def is_assigned() -> bool:
            [group] = self.admin.ask("ConsumerGroupDescribe", 0, described).groups
            [found] = group.members
            return bool(found.target_assignment.topic_partitions)

        wait_until(is_assigned)


@contextlib.contextmanager
def our_side(folder: Path) -> Iterator[Side]:
    settings = {
        **SETTINGS,
        **user_settings(USERS),
        "broker.id": "1",
        "listeners": "PLAINTEXT://127.0.0.1:0,USERS://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,USERS:SASL_PLAINTEXT",
    }
    with RunningBroker(folder, settings) as broker:
        port = broker.server.ports["USERS"]
        with (
            RawClient(broker.server.ports["PLAINTEXT"]) as admin,
            user_client(port, USERS[0]) as client,
            user_client(port, USERS[1]) as other,
        ):
            side = Side(admin, client, other)
            side.prepare()
            yield side


@contextlib.contextmanager
def kafkas_side(folder: Path) -> Iterator[Side]:
    with (
        SecuredKafka(folder, SETTINGS, USERS) as kafka,
        kafka.client() as admin,
        kafka.user_client(USERS[0]) as client,
        kafka.user_client(USERS[1]) as other,
    ):
        side = Side(admin, client, other)
        side.prepare()
        yield side


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    try:
        jars(V4)
    except PeerUnavailable as why:
        pytest.skip(str(why))
    folder = tmp_path_factory.mktemp("authorization")
    with our_side(folder / "ours") as ours, kafkas_side(folder / "kafka") as kafkas:
        yield ours, kafkas


def shape(answer: Any) -> Any:
    """The errors and the authorized operations in an answer, by the resources that it names."""
    if isinstance(answer, list):
        return sorted(filter(None, map(shape, answer)), key=repr)
    if not hasattr(answer, "unknown_tagged_fields"):
        return None
    told = {}
    keys = {}
    for name in field_names(answer):
        value = getattr(answer, name)
        if name.endswith(("error_code", "authorized_operations")):
            told[name] = value
        elif name in KEYS:
            keys[name] = value
        elif inner := shape(value):
            told[name] = inner
    return {**keys, **told} if told else None


def states(case: Case) -> list[tuple[Needed, ...]]:
    """The permissions that a case is tried with."""
    if case.alternatives:
        return [(), *((each,) for each in case.needed)]
    return [case.needed[:count] for count in range(len(case.needed) + 1)]


def seen(case: Case, answer: Any) -> Any:
    name = SEEN.get(case.api)
    return None if name is None else len(getattr(answer, name))


@pytest.mark.slow
@pytest.mark.peer
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_answers_are_those_of_kafka(sides: tuple[Side, Side], case: Case) -> None:
    for granted in states(case):
        answers = []
        for side in sides:
            side.grant(granted)
            answers.append(side.client.ask(case.api, case.version, case.request()))
        ours, kafkas = answers
        assert shape(ours) == shape(kafkas), (granted, ours, kafkas)
        assert seen(case, ours) == seen(case, kafkas), granted
        if case.error != HIDDEN:
            is_refused = f": {case.error}" in repr(shape(ours))
            assert is_refused or granted, "a client without permissions is refused"


@pytest.mark.slow
@pytest.mark.peer
@pytest.mark.parametrize(
    "case", [case for case in CASES if case.api in DENIED_APIS and case.needed], ids=lambda case: case.name
)
def test_a_denial_wins_as_in_kafka(sides: tuple[Side, Side], case: Case) -> None:
    answers = []
    for side in sides:
        side.grant(case.needed, case.needed[-1:])
        answers.append(side.client.ask(case.api, case.version, case.request()))
    ours, kafkas = answers
    assert shape(ours) == shape(kafkas), (ours, kafkas)
    assert seen(case, ours) == seen(case, kafkas)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_every_permission_of_an_api_is_tried(route: Route) -> None:
    access = route.access
    if access.open_because:
        assert not access.resources
        assert access.cluster_operation is None
        return
    declared = set(access.resources)
    if access.cluster_operation is not None:
        assert not declared, "dispatch and the handler would both check"
        declared = {(CLUSTER, access.cluster_operation)}
    assert declared, "a route says what a client needs, or why it needs nothing"
    tried = {
        (needed.resource_type, needed.operation)
        for case in CASES
        if case.api == route.name
        for needed in case.needed
    }
    assert declared <= tried
