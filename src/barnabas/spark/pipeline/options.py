"""A source's keys as the options that Spark's readers take."""

from __future__ import annotations

from typing import Final

from barnabas.spark.pipeline.model import DatabaseSource, FileSource, LogSource, Source, TopicSource
from barnabas.spark.topics.offsets import KAFKA_PREFIX

SOURCE_FORMATS: Final[dict[type, str]] = {
    TopicSource: "barnabas",
    LogSource: "barnabas-log",
    DatabaseSource: "barnabas-database",
}

FAIL_FAST: Final = "FAILFAST"
_LINES: Final = ("json", "csv")
_CORRUPT_COLUMN: Final = "_corrupt_record"
_CORRUPT_COLUMN_OPTION: Final = "columnnameofcorruptrecord"


def fails_at_bad_lines(source: FileSource) -> bool:
    """Whether a line that does not fit the schema stops the pipeline. It does unless the options say otherwise."""
    chosen = {name.lower(): value for name, value in source.options.items()}
    if source.file_format not in _LINES:
        return False
    if "mode" in chosen:
        return chosen["mode"].upper() == FAIL_FAST
    return _CORRUPT_COLUMN_OPTION not in chosen and _CORRUPT_COLUMN not in (source.schema or "")


def reader_options(source: Source) -> dict[str, str]:
    """The options of Spark's reader for a source."""
    options: dict[str, str | int | bool | None] = {}
    if isinstance(source, TopicSource):
        options = {KAFKA_PREFIX + name: value for name, value in source.kafka.items()}
        options[KAFKA_PREFIX + "isolation.level"] = source.isolation
        options["subscribe"] = ",".join(source.topics) or None
        options["subscribePattern"] = source.pattern
        options["includeHeaders"] = source.headers
        options["minPartitions"] = source.min_partitions
        options["failOnDataLoss"] = source.fail_on_data_loss
        options["startingOffsets"] = "earliest" if source.starting == "committed" else source.starting
        options["maxOffsetsPerTrigger"] = source.max_records
    elif isinstance(source, LogSource):
        options = {
            "path": ",".join(source.paths),
            "topics": ",".join(source.topics) or None,
            "isolation": source.isolation,
            "includeHeaders": source.headers,
        }
    elif isinstance(source, FileSource):
        options = {"maxFilesPerTrigger": source.max_files}
    elif isinstance(source, DatabaseSource):
        options = {
            "url": source.url,
            "table": source.table,
            "query": source.query,
            "growingColumn": None if source.as_table else source.growing_column,
            "maxRowsPerTrigger": source.max_rows,
        }
    texts = {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in options.items()
        if value is not None
    }
    return texts | dict(source.options)
