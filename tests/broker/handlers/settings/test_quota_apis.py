"""Client quotas, set and asked for by clients of a running broker, and felt by them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas import errors
from barnabas.protocol.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from barnabas.protocol.messages.describe_client_quotas_request import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from tests.broker.raw_client import RawClient
from tests.broker.record_requests import batch, create_topic, produce_request
from tests.broker.running import RunningBroker

EXACT, DEFAULT, SPECIFIED = range(3)
Entity = dict[str, str | None]


def entry(entity: Entity, limits: dict[str, float | None]) -> EntryData:
    """None removes a quota."""
    return EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[
            OpData(key=key, value=0.0 if value is None else value, remove=value is None)
            for key, value in limits.items()
        ],
    )


def alter(
    client: RawClient, *entries: EntryData, version: int = 1, validate_only: bool = False
) -> list[tuple[Entity, int, str | None]]:
    request = AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
    return [
        (
            {side.entity_type: side.entity_name for side in answer.entity},
            answer.error_code,
            answer.error_message,
        )
        for answer in client.ask("AlterClientQuotas", version, request).entries
    ]


def ask(
    client: RawClient, *components: tuple[str, int, str | None], strict: bool = False, version: int = 1
) -> Any:
    return client.ask(
        "DescribeClientQuotas",
        version,
        DescribeClientQuotasRequest(
            components=[
                ComponentData(entity_type=kind, match_type=match_type, match=match)
                for kind, match_type, match in components
            ],
            strict=strict,
        ),
    )


def quotas(client: RawClient, *components: tuple[str, int, str | None], **options: Any) -> dict[str, Any]:
    """Limits by entity, written as `user=u client-id=c`."""
    answer = ask(client, *components, **options)
    assert (answer.error_code, answer.error_message) == (0, None)
    return {
        " ".join(f"{side.entity_type}={side.entity_name}" for side in each.entity): {
            value.key: value.value for value in each.values
        }
        for each in answer.entries
    }


@pytest.fixture(autouse=True)
def _no_quotas(client: RawClient) -> Iterator[None]:
    yield
    entries = [
        entry(
            {side.entity_type: side.entity_name for side in each.entity},
            {value.key: None for value in each.values},
        )
        for each in ask(client).entries
    ]
    assert {code for _, code, _ in alter(client, *entries)} <= {0}
    assert quotas(client) == {}


@pytest.mark.parametrize("version", range(2))
def test_quotas_are_set_changed_and_removed(client: RawClient, version: int) -> None:
    entity: Entity = {"client-id": "c", "user": "u"}
    limits: dict[str, float | None] = {"producer_byte_rate": 1e6, "request_percentage": 12.5}
    assert alter(client, entry(entity, limits), version=version) == [(entity, 0, None)]
    assert quotas(client, version=version) == {"user=u client-id=c": limits}
    changes: dict[str, float | None] = {"producer_byte_rate": 2e6, "request_percentage": None}
    alter(client, entry(entity, changes), version=version, validate_only=True)
    assert quotas(client, version=version) == {"user=u client-id=c": limits}
    alter(client, entry(entity, changes), version=version)
    assert quotas(client, version=version) == {"user=u client-id=c": {"producer_byte_rate": 2e6}}
    alter(client, entry(entity, {"producer_byte_rate": None, "consumer_byte_rate": None}), version=version)
    assert quotas(client, version=version) == {}


def test_filters(client: RawClient) -> None:
    entities: list[Entity] = [
        {"user": "u"},
        {"user": None},
        {"user": "u", "client-id": "c"},
        {"user": "u", "client-id": None},
        {"client-id": "c"},
    ]
    alter(client, *(entry(entity, {"consumer_byte_rate": 1.0}) for entity in entities))
    alter(client, entry({"ip": "127.0.0.1"}, {"connection_creation_rate": 5.0}))
    assert len(quotas(client)) == 6
    assert quotas(client, strict=True) == {}
    assert set(quotas(client, ("user", EXACT, "u"))) == {
        "user=u",
        "user=u client-id=c",
        "user=u client-id=None",
    }
    assert set(quotas(client, ("user", EXACT, "u"), strict=True)) == {"user=u"}
    assert set(quotas(client, ("user", DEFAULT, None))) == {"user=None"}
    assert set(quotas(client, ("user", SPECIFIED, None), strict=True)) == {"user=u", "user=None"}
    assert set(quotas(client, ("client-id", SPECIFIED, None), ("user", SPECIFIED, None))) == {
        "user=u client-id=c",
        "user=u client-id=None",
    }
    assert set(quotas(client, ("client-id", DEFAULT, None))) == {"user=u client-id=None"}
    assert quotas(client, ("ip", SPECIFIED, None)) == {"ip=127.0.0.1": {"connection_creation_rate": 5.0}}
    assert quotas(client, ("user", EXACT, "nobody")) == {}


@pytest.mark.parametrize(
    ("components", "error", "message"),
    [
        ([("", EXACT, "x")], errors.InvalidRequest, "Invalid empty entity type."),
        ([("user", EXACT, "a"), ("user", DEFAULT, None)], errors.InvalidRequest, "more than once"),
        ([("group", EXACT, "a")], errors.UnsupportedVersion, "Unsupported entity type group"),
        ([("user", EXACT, None)], errors.InvalidRequest, "MATCH_TYPE_EXACT, but set match string to null"),
        ([("user", DEFAULT, "a")], errors.InvalidRequest, "MATCH_TYPE_DEFAULT, but also specified"),
        ([("user", SPECIFIED, "a")], errors.InvalidRequest, "MATCH_TYPE_SPECIFIED, but also specified"),
        ([("user", 3, None)], errors.InvalidRequest, "Unknown match type 3"),
        ([("ip", DEFAULT, None), ("user", DEFAULT, None)], errors.InvalidRequest, "IP filter component"),
    ],
)
def test_filters_that_mean_nothing(
    client: RawClient,
    components: list[tuple[str, int, str | None]],
    error: type[errors.KafkaError],
    message: str,
) -> None:
    answer = ask(client, *components)
    assert answer.error_code == error.code
    assert message in answer.error_message
    assert answer.entries is None


@pytest.mark.parametrize(
    ("entity", "limits", "message"),
    [
        ({}, {"producer_byte_rate": 1.0}, "Invalid empty client quota entity"),
        ({"group": "g"}, {"producer_byte_rate": 1.0}, "Unhandled client quota entity type: group"),
        ({"user": ""}, {"producer_byte_rate": 1.0}, "Empty user not supported"),
        ({"user": "<default>"}, {"producer_byte_rate": 1.0}, "A user named <default> cannot have a quota"),
        ({"client-id": ".."}, {"producer_byte_rate": 1.0}, "A client-id named .. cannot have a quota"),
        ({"ip": "::1", "user": "u"}, {"connection_creation_rate": 1.0}, "Invalid quota entity combination"),
        # A name that no resolver needs to be asked about.
        ({"ip": "x" * 64}, {"connection_creation_rate": 1.0}, "not a valid IP or resolvable host"),
        ({"user": "u"}, {"connection_creation_rate": 1.0}, "Invalid configuration key"),
        ({"ip": "::1"}, {"producer_byte_rate": 1.0}, "Invalid configuration key producer_byte_rate"),
        ({"user": "u"}, {"producer_byte_rate": 0.0}, "must be greater than 0"),
        ({"user": "u"}, {"request_percentage": float("nan")}, "must be greater than 0"),
        ({"user": "u"}, {"request_percentage": float("inf")}, "too large for a DOUBLE"),
        ({"user": "u"}, {"producer_byte_rate": 1e30}, "too large for a LONG"),
        ({"ip": "::1"}, {"connection_creation_rate": 2.0**31}, "too large for an INT"),
        ({"user": "u"}, {"producer_byte_rate": 1.5}, "cannot be a fractional value"),
    ],
)
def test_quotas_that_cannot_be(
    client: RawClient, entity: Entity, limits: dict[str, float | None], message: str
) -> None:
    good: Entity = {"client-id": "good"}
    bad, fine = alter(client, entry(entity, limits), entry(good, {"request_percentage": 1.5}))
    assert bad[:2] == (entity, errors.InvalidRequest.code)
    assert message in str(bad[2])
    assert fine == (good, 0, None)
    assert quotas(client) == {"client-id=good": {"request_percentage": 1.5}}


def test_an_entity_or_a_key_that_is_named_twice_is_not_changed(client: RawClient) -> None:
    twice = entry({"user": "u"}, {"producer_byte_rate": 1.0})
    [(_, code, message)] = alter(client, twice, twice)
    assert code == errors.InvalidRequest.code
    assert message == "Ignoring duplicate entity ClientQuotaEntity(entries={user=u})"
    repeated = entry({"user": "u"}, {"producer_byte_rate": 1.0})
    repeated.ops = repeated.ops * 2
    [(_, code, message)] = alter(client, repeated)
    assert code == errors.InvalidRequest.code
    assert "Duplicate quota key producer_byte_rate" in str(message)
    assert quotas(client) == {}


def test_names_with_any_characters_survive_a_restart(tmp_path: Path) -> None:
    names = ["plain", "with space", "ä/ö*%", "a+b~c", "..."]
    with RunningBroker(tmp_path) as broker, broker.client() as client:
        alter(client, *(entry({"user": name}, {"producer_byte_rate": 7.0}) for name in names))
        alter(client, entry({"user": None, "client-id": "a b"}, {"consumer_byte_rate": 8.0}))
        before = quotas(client)
        assert len(before) == len(names) + 1
    with RunningBroker(tmp_path) as broker, broker.client() as client:
        assert quotas(client) == before


def test_a_quota_is_felt_and_its_removal_too(broker: RunningBroker, client: RawClient) -> None:
    create_topic(client, "throttled")
    alter(client, entry({"client-id": "greedy"}, {"producer_byte_rate": 1_000.0}))
    request = produce_request("throttled", batch(b"x" * 300_000))
    with broker.client("greedy") as greedy:
        # A burst is averaged over ten seconds, and this is thirty times as much as they allow.
        assert greedy.ask("Produce", 9, request).throttle_time_ms > 100_000
        alter(client, entry({"client-id": "greedy"}, {"producer_byte_rate": None}))
    with broker.client("greedy") as greedy:
        assert greedy.ask("Produce", 9, request).throttle_time_ms == 0
    with broker.client("modest") as modest:
        assert modest.ask("Produce", 9, request).throttle_time_ms == 0


def test_a_change_leaves_the_other_quotas_in_force(broker: RunningBroker, client: RawClient) -> None:
    books = broker.server.broker.quotas
    rate = "connection_creation_rate"
    # One address, written in two ways.
    addresses = ("10.0.0.1", "::ffff:10.0.0.1")
    alter(
        client,
        *(entry({"ip": each}, {rate: 5.0}) for each in addresses),
        *(entry({"client-id": each}, {"producer_byte_rate": 7.0}) for each in ("a", "b")),
    )
    alter(client, entry({"client-id": "a"}, {"producer_byte_rate": None}))
    assert books.limit("producer_byte_rate", "ANONYMOUS", "a") is None
    assert books.limit("producer_byte_rate", "ANONYMOUS", "b") is not None
    alter(client, entry({"ip": addresses[1]}, {rate: None}))
    assert books.limit_of_ip(rate, addresses[0]) == 5.0
    alter(client, entry({"ip": addresses[0]}, {rate: None}))
    assert not books.has(rate)
    assert books.has("producer_byte_rate")
    alter(client, entry({"client-id": "b"}, {"producer_byte_rate": None}))
    assert not books.has("producer_byte_rate")
    assert list(books) == []
