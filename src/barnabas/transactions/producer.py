"""Who takes part in a transaction, and by which rules."""

from __future__ import annotations

from typing import Final, NamedTuple

from barnabas.model import ProducerEpoch, ProducerId

TRANSACTION_VERSION_0: Final = 0
TRANSACTION_VERSION_2: Final = 2


class ProducerIdAndEpoch(NamedTuple):
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
