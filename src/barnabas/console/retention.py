"""How long topics keep their records: asked for the rows that a page shows, and remembered for a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.errors import AdminErrors
from barnabas.client.admin.results import ConfigEntry, ConfigResource, ResourceType
from barnabas.errors import KafkaError

NAMES: Final = ("cleanup.policy", "retention.ms", "retention.bytes")
REMEMBERED_S: Final = 60.0
REMEMBERED_MAX: Final = 2_000
NO_RETENTION: Final[Mapping[str, Any]] = {
    "cleanup_policy": None,
    "retention_ms": None,
    "retention_bytes": None,
}


class Retention:
    """For several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, Mapping[str, Any]]] = {}

    def read(self, admin: Admin, topics: Sequence[str]) -> dict[str, Mapping[str, Any]]:
        """The settings of topics, without those that the client may not see."""
        now_s = self._clock()
        with self._lock:
            found = {each: self._known[each] for each in topics if each in self._known}
        answer = {name: values for name, (read_s, values) in found.items() if now_s - read_s < REMEMBERED_S}
        unknown = [ConfigResource(ResourceType.TOPIC, each) for each in topics if each not in answer]
        if unknown:
            try:
                described = admin.describe_configs(unknown, names=NAMES)
            except AdminErrors as failed:
                described = dict(failed.results)
            except KafkaError:
                return answer
            new = {resource.name: _values(entries) for resource, entries in described.items()}
            answer |= new
            with self._lock:
                for name, values in new.items():
                    self._known.pop(name, None)
                    self._known[name] = (now_s, values)
                while len(self._known) > REMEMBERED_MAX:
                    del self._known[next(iter(self._known))]
        return answer

    def forget(self, topic: str) -> None:
        with self._lock:
            self._known.pop(topic, None)


def _values(entries: Mapping[str, ConfigEntry]) -> Mapping[str, Any]:
    """-1, no limit, stays -1."""

    def number(name: str) -> int | None:
        entry = entries.get(name)
        return None if entry is None or entry.value is None else int(entry.value)

    policy = entries.get("cleanup.policy")
    return {
        "cleanup_policy": None if policy is None else policy.value,
        "retention_ms": number("retention.ms"),
        "retention_bytes": number("retention.bytes"),
    }
