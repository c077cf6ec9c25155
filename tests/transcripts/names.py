"""Symbolic names for what differs between two runs: ids of topics, epochs of brokers and controllers, ports, times.

    topic id           the name of the topic, with a number if there was another topic of this name before
    broker epoch       how often the broker has registered in this scenario
    controller epoch   counts from 1, the first controller of the scenario
    port               9000 + broker id
    sequential node    its name without the number

The order in which a request has its topics, partitions, brokers and leaders means nothing: they are sorted. The order
of replicas and of in-sync replicas means something and stays.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from barnabas.protocol.json_form import uuid_from_text, uuid_to_text

ZERO_ID: Final = uuid_to_text(bytes(16))
_TOPIC_NODE: Final = re.compile(r"/brokers/topics/([^/]+)")
# Of a sequential node.
_SEQUENCE: Final = re.compile(r"(?<=_)[0-9]{10}$")
_SORTED_BY: Final = {
    "topicStates": "topicName",
    "topics": "topicId",
    "partitionStates": "partitionIndex",
    "partitions": "partitionIndex",
    "liveBrokers": "id",
    "liveLeaders": "brokerId",
    "remainingPartitions": "topicName",
}


class Names:
    def __init__(self) -> None:
        self.ports: dict[int, int] = {}
        self.reset(0)

    def reset(self, controller_epoch: int) -> None:
        """A scenario begins. The last controller had this epoch."""
        self._base_epoch = controller_epoch
        self._topic_ids: dict[str, str] = {}
        self._current: dict[str, str] = {}
        self._registrations: dict[tuple[int, int], int] = {}

    def learn(self, path: str, data: bytes) -> None:
        """Takes the id of a topic from the data of its node."""
        found = _TOPIC_NODE.fullmatch(path)
        topic_id = json.loads(data).get("topic_id") if found and data else None
        if found and topic_id and topic_id not in self._topic_ids:
            topic = found[1]
            count = sum(each.partition("#")[0] == topic for each in self._topic_ids.values())
            self._topic_ids[topic_id] = f"{topic}#{count + 1}" if count else topic
            self._current[topic] = topic_id

    def learn_epoch(self, broker_id: int, epoch: int) -> None:
        count = sum(each == broker_id for each, _ in self._registrations)
        self._registrations[broker_id, epoch] = count + 1

    def current_id(self, topic: str) -> bytes:
        found = self._current.get(topic)
        return bytes(range(16)) if found is None else uuid_from_text(found)

    def requests(self, broker_id: int, requests: Sequence[tuple[str, int, dict[str, Any]]]) -> list[Any]:
        return [[api, version, self._content(body, broker_id)] for api, version, body in requests]

    def write(self, kind: str, path: str, data: bytes) -> list[Any]:
        path = _SEQUENCE.sub("", path)
        if kind == "delete" or not data:
            return [kind, path]
        content = json.loads(data)
        if path == "/controller_epoch":
            content -= self._base_epoch
        return [kind, path, self._content(content)]

    def reply(self, reply: Any) -> Any:
        return self._content(reply)

    def _content(self, value: Any, broker_id: int = -1, name: str = "") -> Any:
        match value:
            case dict():
                return {
                    key: self._content(each, broker_id, key)
                    for key, each in value.items()
                    if key not in ("timestamp", "throttleTimeMs", "errorMessage")
                }
            case list():
                content = [self._content(each, broker_id, name) for each in value]
                by = _SORTED_BY.get(name)
                if by is not None and content and isinstance(content[0], Mapping):
                    content.sort(key=lambda each: (str(each.get(by)), str(each)))
                return content
        return self._scalar(name, value, broker_id)

    def _scalar(self, name: str, value: Any, broker_id: int) -> Any:
        match name:
            case "controllerEpoch" | "controller_epoch":
                return value - self._base_epoch
            case "brokerEpoch":
                return self._registrations.get((broker_id, value), "unknown")
            case "topicId" | "topic_id" if value != ZERO_ID:
                return self._topic_ids.get(value, "unknown")
            case "port":
                return 9000 + self.ports[value]
        return value
