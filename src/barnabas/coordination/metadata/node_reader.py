"""Reads the JSON object in a node, and checks every field that is read."""

from __future__ import annotations

import json
from typing import Any, TypeAlias

from barnabas.coordination.store.contract import StoreError
from barnabas.model import BrokerId, TopicPartition

Json: TypeAlias = Any


class MalformedNode(StoreError):
    """A node whose bytes are not what Kafka writes there."""


class NodeReader:
    __slots__ = ("_object", "_path")

    def __init__(self, path: str, data: bytes) -> None:
        self._path = path
        try:
            text = data.decode()
            self._object = json.loads(text)
            if "\\u" in text:
                # Half a character, which no message to a broker can have, can be written as an escape.
                json.dumps(self._object, ensure_ascii=False).encode()
        except (ValueError, RecursionError) as error:
            raise self.malformed(f"no JSON: {error}") from error
        if not isinstance(self._object, dict):
            raise self.malformed("no JSON object")

    def malformed(self, problem: str) -> MalformedNode:
        return MalformedNode(f"{self._path}: {problem}")

    def optional(self, key: str) -> Json:
        return self._object.get(key)

    def required(self, key: str) -> Json:
        if key not in self._object:
            raise self.malformed(f"{key} is missing")
        return self._object[key]

    def integer(self, key: str) -> int:
        value = self.required(key)
        if type(value) is not int or not -(1 << 31) <= value < 1 << 31:
            raise self.malformed(f"{key} is no number of 32 bits")
        return value

    def text(self, key: str) -> str:
        value = self.required(key)
        if not isinstance(value, str):
            raise self.malformed(f"{key} is no text")
        return value

    def integer_text(self, key: str) -> int:
        """A number of 64 bits in quotes."""
        text = self.text(key)
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 19):
            raise self.malformed(f"{key} is no number")
        return int(text)

    def broker_ids(self, key: str, value: Json) -> tuple[BrokerId, ...]:
        if not isinstance(value, list) or not all(
            type(each) is int and 0 <= each < 1 << 31 for each in value
        ):
            raise self.malformed(f"{key} is no list of broker ids")
        return tuple(BrokerId(each) for each in value)

    def replicas(self, key: str) -> dict[int, tuple[BrokerId, ...]]:
        """Broker ids by partition number; none when the key is missing."""
        by_partition = self.optional(key)
        if by_partition is None:
            return {}
        if not isinstance(by_partition, dict):
            raise self.malformed(f"{key} is no object")
        replicas = {}
        for index, ids in by_partition.items():
            if not (index.isascii() and index.isdigit() and len(index) <= 9):
                raise self.malformed(f"{key}: {index!r} is no partition")
            replicas[int(index)] = self.broker_ids(key, ids)
        return replicas

    def partitions(self) -> list[tuple[TopicPartition, dict[str, Json]]]:
        items = self.required("partitions")
        if not isinstance(items, list):
            raise self.malformed("partitions is no list")
        found = []
        for item in items:
            topic = item.get("topic") if isinstance(item, dict) else None
            index = item.get("partition") if isinstance(item, dict) else None
            if not isinstance(topic, str) or type(index) is not int:
                raise self.malformed("partitions has an item without topic and partition")
            found.append((TopicPartition(topic, index), item))
        return found
