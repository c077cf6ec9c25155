"""Resources whose settings clients may read and change."""

from __future__ import annotations

from enum import IntEnum

from barnabas.errors import InvalidRequest
from barnabas.model import BrokerId


class ResourceType(IntEnum):
    """Codes of the protocol."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32

    @classmethod
    def _missing_(cls, value: object) -> ResourceType:
        return cls.UNKNOWN


def check_broker_name(name: str, broker_id: BrokerId, *, noun: str, unexpected: str) -> None:
    """Settings of one broker are asked of that broker: raises InvalidRequest if the name is another's.

    Apache Kafka has several words for it; `unexpected` has places for the right id and the wrong one.
    """
    if not name.isascii() or not name.isdigit():
        raise InvalidRequest(f"{noun} id must be an integer, but it is: {name}")
    if name != str(broker_id):
        raise InvalidRequest(unexpected.format(broker_id, name))
