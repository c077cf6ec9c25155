"""When a pipeline that has failed starts again."""

from __future__ import annotations

import pytest

from barnabas.cli.pipelines.session import exit_code_of
from barnabas.errors import (
    CoordinatorNotAvailable,
    InvalidConfig,
    KafkaError,
    NetworkException,
    ProducerFenced,
    TransactionAbortable,
    UnknownTopicOrPartition,
)
from barnabas.spark.failures import SparkFailed

pytest.importorskip("pyspark", reason="pyspark is needed: install barnabas[spark]")

from barnabas.spark.pipeline.restarts import DELAY_MAX_S, Restarts, is_transient


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NetworkException("no broker answers"), 3),
        (CoordinatorNotAvailable("the coordinator moves"), 75),
        (TransactionAbortable("batch 3 was begun 3 times"), 75),
        (SparkFailed("Job aborted: ExecutorLostFailure (executor 1 exited)"), 75),
        (SparkFailed("All masters are unresponsive! Giving up."), 75),
        (SparkFailed("Job 3 cancelled because SparkContext was shut down"), 75),
    ],
)
def test_transient_faults(error: KafkaError, code: int) -> None:
    assert is_transient(error)
    assert exit_code_of(error) == code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UnknownTopicOrPartition("there is no topic oders"), 4),
        (InvalidConfig("the checkpoint was deleted"), 1),
        (ProducerFenced("another driver uses transactional id 'revenue' now"), 1),
        (SparkFailed("a record cannot be decoded: topic orders partition 0 offset 7"), 1),
    ],
)
def test_faults_that_would_come_again(error: KafkaError, code: int) -> None:
    assert not is_transient(error)
    assert exit_code_of(error) == code
    assert Restarts(5).delay_s(error, batches_done=3) is None


def test_delays_grow_until_a_batch_is_done() -> None:
    fault = NetworkException("no broker answers")
    restarts = Restarts(8, random_number=lambda: 0.0)
    delays = [restarts.delay_s(fault, batches_done=0) for _ in range(9)]
    assert delays == [1, 2, 4, 8, 16, 32, DELAY_MAX_S, DELAY_MAX_S, None]
    assert restarts.delay_s(fault, batches_done=1) == 1
    assert restarts.count == 1
    assert Restarts(1, random_number=lambda: 1.0).delay_s(fault, batches_done=0) == pytest.approx(0.8)
