"""Texts of Spark's errors, as Spark 4.2 has written them, and the one line that is left."""

from __future__ import annotations

import pytest

from barnabas.errors import InvalidConfig, KafkaError, NetworkException, OffsetOutOfRange
from barnabas.spark.failures import MESSAGE_LENGTH_MAX, SparkFailed, failure_of, told

SOURCE = """[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source perform \
initialOffset: \
Traceback (most recent call last):
  File "/site-packages/pyspark/sql/streaming/python_streaming_source_runner.py", line 267, in main
  File "/barnabas/spark/topics/directory.py", line 90, in partitions
    raise InvalidConfig(
barnabas.errors.InvalidConfig: subscribe: there is no topic 'oders'; create it, or correct the name
 SQLSTATE: 38000
=== Streaming Query ===
Identifier: [id = bcfe32a0, runId = 789ba865]
"""
LOST = """[PYTHON_DATA_SOURCE_ERROR] Failed: Traceback (most recent call last):
  File "/barnabas/spark/topics/directory.py", line 49, in report_data_loss
    raise DataLost(
barnabas.spark.topics.directory.DataLost: offsets 3 to 7 of orders-0 are gone
 SQLSTATE: 38000
	at org.apache.spark.sql.errors.QueryExecutionErrors$.x(QueryExecutionErrors.scala:1881)
"""
PROXY = """An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "/site-packages/py4j/clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/pipelines/steps.py", line 30, in write
    raise ValueError("my message")
ValueError: my message
second line

=== Streaming Query ===
"""
NESTED = """An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "/site-packages/pyspark/errors/exceptions/captured.py", line 257, in deco
    raise converted from None
pyspark.errors.exceptions.captured.SparkRuntimeException: [USER_RAISED_EXCEPTION] bad record SQLSTATE: P0001
 SQLSTATE: 39000
"""
COLUMN = """[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function parameter with name `nope` cannot be \
resolved. Did you mean one of the following? [`id`, `v`]. SQLSTATE: 42703; line 1 pos 7;
'Project ['nope]
+- ~SubqueryAlias ev
"""
TABLE = """[TABLE_OR_VIEW_NOT_FOUND] The table or view `ev2` cannot be found. Verify the spelling and correctness \
of the \
schema and catalog.
Search path: [`system`.`builtin`, `system`.`session`, `spark_catalog`.`default`].
To tolerate the error on drop use DROP VIEW IF EXISTS or DROP TABLE IF EXISTS. SQLSTATE: 42P01; line 1 pos 14;
'Project [unresolvedalias(1)]
"""
MODE = """[STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION] Invalid streaming output mode: append. This output mode is not \
supported for streaming aggregations without watermark on streaming DataFrames/DataSets. SQLSTATE: 42KDE"""


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (SOURCE, InvalidConfig, "subscribe: there is no topic 'oders'; create it, or correct the name"),
        (LOST, OffsetOutOfRange, "offsets 3 to 7 of orders-0 are gone"),
        (PROXY, SparkFailed, "ValueError: my message second line"),
        (NESTED, SparkFailed, "bad record"),
        (
            COLUMN,
            SparkFailed,
            (
                "A column, variable, or function parameter with name `nope` cannot be resolved. Did you mean one of the"
                " following? [`id`, `v`]. (line 1 pos 7)"
            ),
        ),
        (TABLE, SparkFailed, "The table or view `ev2` cannot be found. (line 1 pos 14)"),
        (
            MODE,
            SparkFailed,
            (
                "Invalid streaming output mode: append. This output mode is not supported for streaming aggregations"
                " without watermark on streaming DataFrames/DataSets."
            ),
        ),
        (
            "java.net.ConnectException: Call From here to there:9000 failed\n\tat java.base/x(Y.java:1)\n",
            SparkFailed,
            "Call From here to there:9000 failed",
        ),
        (
            "[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number.",
            SparkFailed,
            "Java has ended before Spark was ready; --debug shows its output",
        ),
        (
            # Two parts of a plan that read the same source fail at the same time.
            (
                "org.apache.spark.SparkException: Multiple failures (2) in stage materialization:\n"
                "  1. SparkRuntimeException: [USER_RAISED_EXCEPTION] the record is bad SQLSTATE: P0001\n"
                "  2. SparkRuntimeException: [USER_RAISED_EXCEPTION] the record is bad SQLSTATE: P0001"
            ),
            SparkFailed,
            "the record is bad",
        ),
        ("", SparkFailed, "Nameless"),
    ],
)
def test_one_line_is_left(text: str, kind: type[KafkaError], message: str) -> None:
    failure = failure_of(text, "Nameless")
    assert type(failure) is kind
    assert str(failure) == message


def test_errors_of_ours_and_of_others() -> None:
    ours = NetworkException("nobody answers")
    assert told(ours) is ours
    wrapped = RuntimeError("wrapped")
    wrapped.__cause__ = ours
    assert told(wrapped) is ours
    assert str(told(KeyError("customer"))) == "KeyError: 'customer'"
    assert str(told(ZeroDivisionError())) == "ZeroDivisionError"
    assert len(str(told(ValueError("x" * 10_000)))) <= MESSAGE_LENGTH_MAX + len("ValueError: ")
