"""Rules for masking: what they hide, and that searches do not find what is hidden."""

from __future__ import annotations

import json
from collections.abc import Callable
from urllib.parse import quote

import pytest

from barnabas.console.search.masking import MASK, parse_masks
from barnabas.errors import InvalidConfig
from barnabas.testing import Broker
from tests.console.running import RunningConsole


@pytest.mark.parametrize(
    ("rule", "value", "shown"),
    [
        ("*:$.email", {"email": "a@b.c", "id": 1}, {"email": MASK, "id": 1}),
        ("t*:$.user.name", {"user": {"name": "ann", "age": 3}}, {"user": {"name": MASK, "age": 3}}),
        ("t:$.items[*].price", {"items": [{"price": 1}, {"price": 2}]}, {"items": [{"price": MASK}] * 2}),
        ("t:$.items[1]", {"items": [1, 2, 3]}, {"items": [1, MASK, 3]}),
        ("t:$..card", {"a": [{"card": {"number": 7}}], "card": None}, {"a": [{"card": MASK}], "card": MASK}),
        ("t:$.email", {"other": 1}, {"other": 1}),
        ("other:$.email", {"email": "a"}, {"email": "a"}),
    ],
)
def test_fields_of_json(rule: str, value: object, shown: object) -> None:
    mask = parse_masks([rule]).of("t")
    data = json.dumps(value).encode()
    found = data if mask is None else mask.apply(None, data, ())[1]
    assert found is not None
    assert json.loads(found) == shown


def test_other_parts() -> None:
    mask = parse_masks(["t:key", "t:header.token", "t:$.a"]).of("t")
    assert mask is not None
    hidden = MASK.encode()
    headers = (("token", b"secret"), ("other", b"x"), ("token", None))
    assert mask.apply(b"k", b"not json", headers) == (
        hidden,
        hidden,
        (("token", hidden), ("other", b"x"), ("token", None)),
    )
    assert mask.apply(None, None, ()) == (None, None, ())
    deep = b"[" * 100_000
    assert mask.apply(None, deep, ())[1] == hidden
    whole = parse_masks(["t:value"]).of("t")
    assert whole is not None
    assert whole.apply(b"k", b"v", ())[:2] == (b"k", hidden)


@pytest.mark.parametrize(
    "rule", ["", "t", "t:", ":key", "t:header.", "t:$", "t:$.", "t:$..", "t:$[x", "t:nothing"]
)
def test_rules_that_cannot_be_read(rule: str) -> None:
    with pytest.raises(InvalidConfig):
        parse_masks([rule])


def test_no_way_to_records_shows_what_is_masked(broker: Broker, new_topic: Callable[..., str]) -> None:
    topic, copy = new_topic(partitions=1), new_topic(partitions=1)
    value = {"id": 7, "email": "ann@example.org"}
    with broker.producer() as producer:
        producer.send(topic, json.dumps(value).encode(), key=b"seven", headers={"token": b"s3cret"})
    masks = parse_masks([f"{topic}:$.email", f"{topic}:header.token"])
    with RunningConsole(broker.bootstrap, masks=masks) as console:
        base = f"/api/topics/{topic}"
        for path in ("records", "records/0/0", "search?q=seven", "download", "download?format=csv"):
            body = console.ask("GET", f"{base}/{path}").body.decode()
            assert "seven" in body, path
            assert "ann@" not in body, path
            assert "s3cret" not in body, path
        for query in ("ann@example.org", "$.email:ann", "/ann@/", "header.token:s3cret"):
            events = list(console.events(f"{base}/search?q={quote(query)}"))
            assert [name for name, _ in events if name == "hit"] == [], query
        # A copy in a topic without rules would show everything.
        refused = console.ask("POST", f"{base}/records/0/0/resend", {"to": copy})
        assert refused.status == 400
        assert "masked" in refused.json()["message"]
        assert console.get(f"/api/topics/{copy}/records")["records"] == []


def test_a_dead_letter_goes_back(
    broker: Broker, console: RunningConsole, new_topic: Callable[..., str]
) -> None:
    topic, letters = new_topic(partitions=1), new_topic(partitions=1)
    with broker.producer() as producer:
        headers = {"a": b"1", "__barnabas.errors.topic": topic.encode(), "__barnabas.errors.message": b"bad"}
        producer.send(letters, b"{", key=b"k", headers=headers)
        producer.send(letters, b"plain")
    path = f"/api/topics/{letters}/records/0"
    assert console.change("POST", f"{path}/0/resend", {})["topic"] == topic
    sent = console.get(f"/api/topics/{topic}/records/0/0")
    assert (sent["key"]["text"], sent["value"]["text"]) == ("k", "{")
    assert [each["name"] for each in sent["headers"]] == ["a"]
    assert console.ask("POST", f"{path}/1/resend", {}).status == 400
    assert console.ask("POST", f"{path}/9/resend", {}).status == 404
