"""Offsets of topics as Spark writes them: {"topic":{"0":23,"1":-1}}, and their commit to a group.

Where an option allows it, -2 means the earliest offset of a partition and -1 the latest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.results import CommittedOffset
from barnabas.client.settings import ADMIN
from barnabas.errors import InvalidConfig
from barnabas.model import TopicPartition

EARLIEST: Final = -2
LATEST: Final = -1

KAFKA_PREFIX: Final = "kafka."
INT64_MAX: Final = 2**63 - 1

Offsets = dict[TopicPartition, int]
Nested = dict[str, dict[str, int]]
"""Offsets in the form of the JSON, by topic and by partition as text."""

_ADMIN_NAMES: Final = frozenset(setting.name for setting in ADMIN)


def parse(given: str | Mapping[str, object], *, what: str = "offsets", minimum: int = 0) -> Offsets:
    """The offsets of a JSON text or its parsed form; InvalidConfig names the option `what`."""
    form = _loads(given, what) if isinstance(given, str) else given
    offsets: Offsets = {}
    for topic, partitions in form.items():
        if not isinstance(partitions, Mapping):
            raise _refused(what, given, f"topic {topic!r} has no partitions in braces")
        for partition, offset in partitions.items():
            if not str(partition).isascii() or not str(partition).isdigit():
                raise _refused(what, given, f"{partition!r} is no partition of topic {topic!r}")
            if isinstance(offset, bool) or not isinstance(offset, int) or not minimum <= offset <= INT64_MAX:
                raise _refused(what, given, f"{offset!r} cannot be for partition {partition} of {topic!r}")
            offsets[TopicPartition(topic, int(partition))] = offset
    return offsets


def nest(offsets: Mapping[TopicPartition, int]) -> Nested:
    """The offsets in the form of the JSON: the same offsets always give the same form."""
    nested: Nested = {}
    for partition in sorted(offsets):
        nested.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return nested


def render(offsets: Mapping[TopicPartition, int]) -> str:
    """The JSON text, as Spark's own kafka format writes it."""
    return json.dumps(nest(offsets), separators=(",", ":"))


def admin_settings(kafka_options: Mapping[str, str]) -> dict[str, str]:
    """Those of a client's settings, with or without the prefix `kafka.`, that an admin client has too."""
    settings = {name.removeprefix(KAFKA_PREFIX): value for name, value in kafka_options.items()}
    return {name: value for name, value in settings.items() if name in _ADMIN_NAMES}


def commit_progress(
    kafka_options: Mapping[str, str],
    group: str,
    offsets: Mapping[TopicPartition, int],
    metadata: str = "",
) -> None:
    """Commits the offsets to a group without members, so that tools show its lag."""
    with Admin(admin_settings(kafka_options)) as admin:
        commit_by(admin, group, offsets, metadata)


def commit_by(admin: Admin, group: str, offsets: Mapping[TopicPartition, int], metadata: str = "") -> None:
    """The same, with an existing client."""
    if offsets:
        committed = {
            partition: CommittedOffset(offset=offset, metadata=metadata)
            for partition, offset in offsets.items()
        }
        admin.alter_group_offsets(group, committed)


def _loads(text: str, what: str) -> Mapping[str, object]:
    try:
        form = json.loads(text)
    except ValueError as error:
        raise _refused(what, text, f"it is no JSON: {error}") from None
    if not isinstance(form, dict):
        raise _refused(what, text, "it has no topics in braces")
    return form


def _refused(what: str, given: object, why: str) -> InvalidConfig:
    return InvalidConfig(f'{what}={given}: {why}; it should look like {{"topic":{{"0":23,"1":45}}}}')
