"""Keys and values with schemas of a registry: Avro and JSON Schema, in the API and in Chromium."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from barnabas.client.schemas.avro import AvroSerializer
from barnabas.client.schemas.json_schema import JsonSchemaSerializer
from barnabas.client.schemas.registry import SchemaRegistry
from barnabas.console.api.schemas import SchemaView
from barnabas.console.search.masking import parse_masks
from barnabas.testing import Broker
from tests.client.schemas.registry_server import RegistryServer
from tests.console.chromium import opened_page, running_chromium
from tests.console.running import RunningConsole

AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "customer", "type": "string"}],
}
JSON_SCHEMA = {"type": "object", "title": "Note", "properties": {"text": {"type": "string"}}}
ORDER = {"id": 7, "customer": "ann"}


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryServer]:
    pytest.importorskip("fastavro", reason="Avro needs the package fastavro")
    with RegistryServer() as running:
        yield running


@pytest.fixture
def topic(broker: Broker, registry: RegistryServer, new_topic: Callable[..., str]) -> str:
    """A topic with an Avro value, a JSON value with a schema, an unknown schema, and bytes that fit none."""
    name = new_topic(partitions=1)
    client = SchemaRegistry(registry.url)
    with broker.producer() as producer:
        avro = AvroSerializer(client, json.dumps(AVRO)).serialize(name, ORDER)
        producer.send(name, avro, key=b"plain")
        producer.send(
            name, JsonSchemaSerializer(client, json.dumps(JSON_SCHEMA)).serialize(name, {"text": "hi"})
        )
        producer.send(name, b"\x00\x00\x00\x03\xe7rest")
        assert avro is not None
        producer.send(name, avro[:5] + b"\xff")
        producer.send(name, b"\x00")
    return name


def shown(console: RunningConsole, topic: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = console.get(f"/api/topics/{topic}/records?order=oldest")["records"]
    return found


def test_records_are_decoded(broker: Broker, registry: RegistryServer, topic: str) -> None:
    with RunningConsole(broker.bootstrap, schemas=SchemaView(registry.url)) as console:
        order, note, unknown, damaged, short = (each["value"] for each in shown(console, topic))
        assert (order["schema"]["type"], order["schema"]["name"]) == ("AVRO", "Order")
        assert json.loads(order["schema"]["json"]) == ORDER
        assert json.loads(note["schema"]["json"]) == {"text": "hi"}
        assert unknown["schema"]["id"] == 999
        assert "json" not in unknown["schema"]
        assert unknown["schema"]["error"]
        assert "json" not in damaged["schema"]
        assert "schema" not in short
        # Damaged bytes do not hide other records of their schema.
        assert json.loads(shown(console, topic)[0]["value"]["schema"]["json"]) == ORDER
        hits = [data for name, data in console.events(f"/api/topics/{topic}/search?q=ann") if name == "hit"]
        assert json.loads(hits[0]["value"]["schema"]["json"]) == ORDER
        assert (
            '""customer"": ""ann""'
            in console.ask("GET", f"/api/topics/{topic}/download?format=csv").body.decode()
        )
        asked = len(registry.requests)
        shown(console, topic)
        assert len(registry.requests) == asked, "schemas, and ids that are unknown, are asked for once"


def test_masked_values_are_not_decoded(broker: Broker, registry: RegistryServer, topic: str) -> None:
    masks = parse_masks(["*:$.customer"])
    with RunningConsole(broker.bootstrap, schemas=SchemaView(registry.url), masks=masks) as console:
        assert "ann" not in json.dumps(shown(console, topic))


def test_a_registry_that_is_gone(broker: Broker, topic: str) -> None:
    with RegistryServer() as gone:
        url = gone.url
    with RunningConsole(broker.bootstrap, schemas=SchemaView(url)) as console:
        value = shown(console, topic)[0]["value"]
        assert "base64" in value
        assert value["schema"]["error"]


@pytest.mark.slow
def test_the_page(broker: Broker, registry: RegistryServer, topic: str) -> None:
    with (
        RunningConsole(broker.bootstrap, schemas=SchemaView(registry.url)) as console,
        running_chromium() as browser,
        opened_page(browser) as (page, faults),
    ):
        page.goto(f"{console.address}/#/topics/{topic}/messages")
        page.get_by_role("cell", name='{"id": 7, "customer": "ann"}').wait_for()
        page.get_by_role("button", name="Details of partition 0 offset 0").click()
        page.get_by_text("AVRO Order (schema").wait_for()
        page.get_by_label("Value", exact=True).get_by_text('"customer": "ann"').wait_for()
        page.get_by_role("button", name="Details of partition 0 offset 2").click()
        page.get_by_text("schema 999:").wait_for()
        assert not faults
