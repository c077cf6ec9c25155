"""The programs of docs/SPARK.md run, one after the other, as one program."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from barnabas.testing import Broker
from tests.examples import blocks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GUIDE = Path(__file__).parents[2] / "docs" / "SPARK.md"
# Within one minute, so that they are in one window.
TIMESTAMP_MS = 1_800_000_000_000


def test_the_programs_of_the_guide(spark: SparkSession, tmp_path: Path) -> None:
    programs = [
        block.text for block in blocks(GUIDE.read_text(encoding="utf-8")) if block.language == "python"
    ]
    names: dict[str, Any] = {}
    with Broker(topics={"orders": 1, "minutes": 1}) as broker:
        with broker.producer() as producer:
            for number in range(3):
                producer.send("orders", b"%d" % number, timestamp_ms=TIMESTAMP_MS + number).result(60)
        places = {
            "localhost:9092": broker.bootstrap,
            "/data/checkpoints": str(tmp_path),
            "/var/kafka-1,/var/kafka-2": str(broker.directory),
        }
        for text in programs:
            for shown, actual in places.items():
                text = text.replace(shown, actual)
            exec(compile(text, "docs/SPARK.md", "exec"), names)
        query = names["query"]
        try:
            query.processAllAvailable()
        finally:
            query.stop()
        with broker.consumer("minutes", isolation_level="read_committed") as consumer:
            assert next(consumer).value == b"3"
        assert [bytes(row.value) for row in names["frame"].collect()] == [b"0", b"1", b"2"]
    assert len(programs) == 3
