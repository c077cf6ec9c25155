"""The types of resources whose settings clients may read and change."""

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
    """Only the broker itself answers for its settings: raises InvalidRequest for the name of another broker.

    Apache Kafka has several texts for it; `unexpected` has places for the expected id and the received one.
    """
    if not name.isascii() or not name.isdigit():
        raise InvalidRequest(f"{noun} id must be an integer, but it is: {name}")
    if name != str(broker_id):
        raise InvalidRequest(unexpected.format(broker_id, name))
