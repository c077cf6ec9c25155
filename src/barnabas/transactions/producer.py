"""The producer of a transaction, and the version of its protocol."""

from __future__ import annotations

from typing import Final, NamedTuple

from barnabas.model import ProducerEpoch, ProducerId

TRANSACTION_VERSION_0: Final = 0
TRANSACTION_VERSION_1: Final = 1
TRANSACTION_VERSION_2: Final = 2


class ProducerIdAndEpoch(NamedTuple):
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
