"""Users, ACLs, quotas and reassignments through the API."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from barnabas.console.api.routes import ROUTES
from barnabas.testing import Broker
from tests.console.running import CHANGES, RunningConsole

ACL = {
    "principal": "User:bob",
    "permission": "ALLOW",
    "operation": "READ",
    "resource_type": "TOPIC",
    "resource": "orders",
    "pattern_type": "PREFIXED",
    "host": "*",
}


@pytest.fixture(scope="module")
def guarded() -> Iterator[RunningConsole]:
    with (
        Broker(
            authorizer_class_name="kafka.security.authorizer.AclAuthorizer",
            super_users="User:ANONYMOUS",
        ) as broker,
        RunningConsole(broker.bootstrap) as console,
    ):
        yield console


def test_users(guarded: RunningConsole) -> None:
    assert guarded.get("/api/users") == {"total": 0, "users": []}
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        body = {"name": "bob", "password": "secret", "mechanism": mechanism}
        assert guarded.change("POST", "/api/users", body)["mechanism"] == mechanism
    (bob,) = guarded.get("/api/users")["users"]
    assert bob == {
        "name": "bob",
        "mechanisms": [
            {"mechanism": "SCRAM-SHA-256", "iterations": 8192},
            {"mechanism": "SCRAM-SHA-512", "iterations": 8192},
        ],
    }
    assert guarded.ask("DELETE", "/api/users/bob", {"mechanism": "SCRAM-SHA-256"}).status == 400
    guarded.change("DELETE", "/api/users/bob", {"mechanism": "SCRAM-SHA-256", "confirm": "bob"})
    assert len(guarded.get("/api/users")["users"][0]["mechanisms"]) == 1
    for bad in (
        {"name": "x"},
        {"name": "", "password": "a"},
        {"name": "x", "password": "a", "mechanism": "MD5"},
        {"name": "x", "password": "a", "iterations": 1},
    ):
        assert guarded.ask("POST", "/api/users", bad).status == 400, bad


def test_acls(guarded: RunningConsole) -> None:
    assert guarded.change("POST", "/api/acls", ACL) == ACL
    guarded.change("POST", "/api/acls", {**ACL, "permission": "DENY", "operation": "WRITE"})
    assert guarded.get("/api/acls")["total"] == 2
    assert guarded.get("/api/acls?search=nobody")["total"] == 0
    assert guarded.change("DELETE", "/api/acls", ACL) == {"deleted": [ACL]}
    assert guarded.change("DELETE", "/api/acls", ACL) == {"deleted": []}
    (left,) = guarded.get("/api/acls")["acls"]
    assert left["permission"] == "DENY"
    for bad in ({"principal": "bob"}, {"operation": "FLY"}, {"pattern_type": "MATCH"}, {"resource": None}):
        assert guarded.ask("POST", "/api/acls", {**ACL, **bad}).status == 400, bad


def test_quotas(console: RunningConsole) -> None:
    values = {"producer_byte_rate": 1_000_000.0, "request_percentage": 50.0}
    console.change("PATCH", "/api/quotas", {"entity": {"user": "q", "client-id": None}, "values": values})
    (row,) = [each for each in console.get("/api/quotas")["quotas"] if each["entity"][-1]["name"] == "q"]
    assert row["values"] == values
    gone = dict.fromkeys(values)
    console.change("PATCH", "/api/quotas", {"entity": {"user": "q", "client-id": None}, "values": gone})
    assert all(each["entity"][-1]["name"] != "q" for each in console.get("/api/quotas")["quotas"])
    for entity, changed in (
        ({}, values),
        ({"planet": "x"}, values),
        ({"user": 7}, values),
        ({"user": "q"}, {}),
        ({"user": "q"}, {"producer_byte_rate": "much"}),
        ({"user": "q"}, {"no_such_quota": 1}),
    ):
        answer = console.ask("PATCH", "/api/quotas", {"entity": entity, "values": changed})
        assert answer.status == 400, (entity, changed, answer)


def test_reassignments(console: RunningConsole, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    replicas = console.get(f"/api/topics/{topic}")["partitions"][0]["replicas"]
    console.change("POST", "/api/reassignments", {"topic": topic, "partition": 0, "replicas": replicas})
    for wrong in ([99], [], ["0"], "0"):
        body = {"topic": topic, "partition": 0, "replicas": wrong}
        assert console.ask("POST", "/api/reassignments", body).status == 400, wrong
    # There is no move to cancel.
    body = {"topic": topic, "partition": 0, "replicas": None}
    assert console.ask("POST", "/api/reassignments", body).status == 400


def test_a_read_only_console_refuses_every_change(broker: Broker) -> None:
    """All routes of the table that are not reads, so that a new one cannot be forgotten."""
    changes = [each for each in ROUTES if each.method != "GET" and not each.access]
    assert len(changes) >= 15
    with RunningConsole(broker.bootstrap, is_read_only=True) as console:
        for route in changes:
            path = route.path.replace("{partition:int}", "0").replace("{offset:int}", "0")
            path = path.replace("{", "").replace("}", "").replace(":path", "")
            answer = console.ask(route.method, path, {}, CHANGES)
            assert answer.status == 403, (route, answer)
            assert "read-only" in answer.json()["message"]
