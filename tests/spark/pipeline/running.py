"""Runs pipelines in the shared session, and looks at the topics that they write."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barnabas.spark.pipeline.progress import BatchReport
from barnabas.spark.pipeline.run import PipelineRun
from barnabas.testing import Broker
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from barnabas.spark.pipeline.model import Pipeline


TIMEOUT_S = 300
Load = Callable[..., "Pipeline"]


def run_to_end(spark: SparkSession, pipeline: Pipeline, folder: Path) -> list[BatchReport]:
    """Has the pipeline read what there is; raises what it failed with."""
    running = PipelineRun(spark, pipeline, folder, available_now=True)
    reports = []
    try:
        running.start()
        wait_until(lambda: not running.is_active, "the pipeline ends", timeout_s=TIMEOUT_S, poll_s=0.05)
        reports = running.reports()
        failure = running.error()
    finally:
        running.stop()
    if failure is not None:
        raise failure
    return reports


def send(broker: Broker, topic: str, values: list[Any]) -> None:
    with broker.producer() as producer:
        producer.send_many(
            topic, [each if isinstance(each, bytes) else json.dumps(each).encode() for each in values]
        )


def values_of(broker: Broker, topic: str) -> list[Any]:
    return [json.loads(record.value) for record in records_of(broker, topic)]


def records_of(broker: Broker, topic: str) -> list[Any]:
    with broker.admin() as admin, broker.consumer(topic, isolation_level="read_committed") as consumer:
        ends = admin.list_offsets(consumer.assignment())
        found = []
        while any(consumer.position(partition) < (ends[partition].offset or 0) for partition in ends):
            found += consumer.poll(timeout_ms=1000)
        return found
