"""The meaning of each setting in a sentence or two: for DescribeConfigs and for the reference.

`meanings.json` has them by the kind of resource. Of a setting that has no effect here, `idle` says what it is for, by
the beginning of its name. The file is read at first use.
"""

from __future__ import annotations

import json
import os
from functools import cache
from typing import Final

from barnabas.config.broker_settings import HOUR_MS, MINUTE_MS, TOPIC_SYNONYMS
from barnabas.config.security_check import is_unsupported

_UNITS: Final = {1: "", MINUTE_MS: " in minutes", HOUR_MS: " in hours"}


@cache
def meanings() -> dict[str, dict[str, str]]:
    """By kind (`broker`, `topic`, `group`, `client`) and name."""
    with open(os.path.join(os.path.dirname(__file__), "meanings.json"), "rb") as file:
        found: dict[str, dict[str, str]] = json.load(file)
    return found


def broker_meaning(name: str) -> str | None:
    """Of a setting in a `server.properties`; None if there is no such setting."""
    own = meanings()["broker"].get(name)
    if own is not None:
        return own
    for topic_name, synonyms in TOPIC_SYNONYMS.items():
        for number, synonym in enumerate(synonyms):
            if synonym.name == name:
                earlier = " and ".join(f"`{each.name}`" for each in synonyms[:number])
                unless = (
                    f" It counts if {earlier} {'are' if number > 1 else 'is'} not set." if earlier else ""
                )
                default = f"The default of the topic setting `{topic_name}`{_UNITS[synonym.factor]}.{unless}"
                return f"{default} {meanings()['topic'][topic_name]}"
    purpose = idle_purpose(name)
    if purpose is None:
        return None
    if is_unsupported(name):
        return f"Not supported: the broker does not start if it is set. In Apache Kafka it is for {purpose}."
    return f"No effect. In Apache Kafka it is for {purpose}."


def idle_purpose(name: str) -> str | None:
    """What a setting without an effect is for, by the longest beginning of its name."""
    found = [prefix for prefix in meanings()["idle"] if name.startswith(prefix)]
    return meanings()["idle"][max(found, key=len)] if found else None


def topic_meaning(name: str) -> str | None:
    return meanings()["topic"].get(name)


def group_meaning(name: str) -> str | None:
    return meanings()["group"].get(name)


def client_meaning(name: str) -> str | None:
    """Of a setting of producers, consumers and admin clients."""
    return meanings()["client"].get(name)
