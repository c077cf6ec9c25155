"""What confluent-kafka's own serializers write: the oracle of ours.

They need packages that nothing else here needs (the extras `avro`, `json` and `protobuf` of confluent-kafka). Their
bytes are kept in tests/data/schemas/confluent.json, so that the comparison runs without these packages:

    python -m tests.client.schemas.confluent
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.client.schemas.cases import CASES, TOPIC, Case
from tests.client.schemas.registry_server import RegistryServer

RECORDED = Path(__file__).parents[2] / "data" / "schemas" / "confluent.json"


def confluent_bytes(url: str, case: Case) -> bytes:
    from confluent_kafka import schema_registry
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.schema_registry.json_schema import JSONSerializer
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
    from confluent_kafka.serialization import SerializationContext

    settings = {"subject.name.strategy": getattr(schema_registry, f"{case.strategy}_subject_name_strategy")}
    with schema_registry.SchemaRegistryClient({"url": url}) as client:
        serializer: Any
        if case.kind == "avro":
            serializer = AvroSerializer(client, case.schema, conf=settings)
        elif case.kind == "json":
            serializer = JSONSerializer(case.schema, client, conf=settings)
        else:
            serializer = ProtobufSerializer(case.schema, client, conf=settings)
        written = serializer(case.value, SerializationContext(TOPIC, case.field))
        # Its own `with` leaves the connections open.
        client._rest_client.session.close()
    assert isinstance(written, bytes)
    return written


def record() -> None:
    """Writes what each case gives on a registry of its own, and what was asked of the registry."""
    made = {}
    for case in CASES:
        with RegistryServer() as server:
            written = confluent_bytes(server.url, case)
            subjects = sorted(server.answer("GET", "/subjects", None, {}))
        made[case.name] = {"bytes": written.hex(), "subjects": subjects}
    RECORDED.parent.mkdir(parents=True, exist_ok=True)
    RECORDED.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    record()
