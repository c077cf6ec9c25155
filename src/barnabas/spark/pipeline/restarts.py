"""When a pipeline that has failed starts again, and how long it waits before that.

A fault is transient if the same run may succeed a moment later: brokers that do not answer or move leaders, executors
and workers that were lost, a master that is away. Everything else, such as a record that cannot be decoded, an error in
SQL, or another driver that has taken over, would fail again.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Final

from barnabas.errors import KafkaError, TransactionAbortable, UnknownTopicOrPartition
from barnabas.spark.failures import LOST

FIRST_DELAY_S: Final = 1.0
DELAY_MAX_S: Final = 60.0
# A part of each delay is chosen at random, so that many pipelines do not come back in the same moment.
RANDOM_SHARE: Final = 0.2

# Spark's messages when its master, the connection to it, or its own Java process is gone.
_SPARK_GONE: Final = re.compile(
    r"masters are unresponsive|Master removed our application|SparkContext (has been|was) (stopped|shut ?down)"
    r"|cancelled because SparkContext|Error while sending or receiving|Answer from Java side is empty",
    re.IGNORECASE,
)
# Kafka calls it retriable, because metadata may be late; for a pipeline it is a topic that does not exist.
_NOT_TRANSIENT: Final = (UnknownTopicOrPartition,)


def is_transient(error: KafkaError) -> bool:
    """Whether the same pipeline may succeed if it is started again."""
    if isinstance(error, _NOT_TRANSIENT):
        return False
    text = str(error)
    return (
        error.retriable
        or isinstance(error, TransactionAbortable)
        or LOST.search(text) is not None
        or _SPARK_GONE.search(text) is not None
    )


class Restarts:
    """Counts the restarts in a row; a batch that is done ends the row."""

    def __init__(self, retries_max: int, *, random_number: Callable[[], float] = random.random) -> None:
        self._retries_max = retries_max
        self._random_number = random_number
        self._count = 0

    @property
    def count(self) -> int:
        return self._count

    def delay_s(self, error: KafkaError, *, batches_done: int) -> float | None:
        """How long to wait before the next start; None if there is none."""
        if batches_done:
            self._count = 0
        if not is_transient(error) or self._count >= self._retries_max:
            return None
        full_s: float = min(DELAY_MAX_S, FIRST_DELAY_S * 2**self._count)
        self._count += 1
        return full_s * (1 - RANDOM_SHARE * self._random_number())
