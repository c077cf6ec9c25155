"""Rules for every record of a source, whatever SQL follows.

Spark evaluates only what a result needs, in its own order. It moves a filter of the user below a check, and does not
compute a check whose outcome nothing reads. But no filter moves past one with a non-deterministic condition, and Spark
does not prune the columns that such a condition reads. So each rule is a filter of this kind, directly above the
source.

A rule sees the rows that Spark reads, and Spark may not read all rows: only the first ones for a LIMIT, or none of one
side of a join if the other side is empty. `left_unread` finds such sources in the optimized plan, and `with_checks`
reads them once more beside the result, only for their rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

# Operators of a batch that read every row of their inputs. Other operators may stop early or not start: limits,
# subqueries, joins with an empty side.
READS_ALL: Final = frozenset(
    {
        "Aggregate",
        "ArrowEvalPython",
        "BatchEvalPython",
        "Expand",
        "Filter",
        "Generate",
        "Project",
        "RebalancePartitions",
        "Repartition",
        "RepartitionByExpression",
        "Sample",
        "Sort",
        "Union",
        "Window",
    }
)

AGGREGATES: Final = frozenset({"Aggregate", "Distinct"})
LIMITS: Final = frozenset({"GlobalLimit", "LocalLimit"})


def require(frame: DataFrame, is_good: Column, problem: Column, source: str) -> DataFrame:
    """The rows that are good; one that is not fails the query with its problem."""
    told = F.coalesce(problem, F.lit(_mark(source)))
    return frame.where(_unmoved().when(is_good, True).otherwise(F.raise_error(told)))


def keep(frame: DataFrame, is_good: Column) -> DataFrame:
    """The rows that are good. Conditions and functions that come behind see no other rows."""
    return frame.where(_unmoved().otherwise(is_good))


def require_parsed(frame: DataFrame, source: str) -> DataFrame:
    """All rows. Their source, which fails if it cannot parse a row, parses every column."""
    row = F.to_json(F.struct(*(F.col("`" + name.replace("`", "``") + "`") for name in frame.columns)))
    told = F.coalesce(row, F.lit(_mark(source)))
    return frame.where(F.when(F.spark_partition_id() < 0, F.raise_error(told)).otherwise(True))


def _unmoved() -> Column:
    # It is one expression: of `a AND b`, Spark moves the one that is deterministic.
    return F.when(F.spark_partition_id() < 0, False)


def _mark(source: str) -> str:
    """The text by which the rule of a source is found in a plan."""
    return f"a record of sources.{source} cannot be decoded"


def with_checks(result: DataFrame, ruled: Iterable[DataFrame]) -> DataFrame:
    """The result, united with no rows of these sources: Spark reads them to their ends, for their rules."""
    nothing = [F.lit(None).cast(field.dataType).alias(field.name) for field in result.schema.fields]
    for frame in ruled:
        result = result.union(frame.where(F.spark_partition_id() < 0).select(*nothing))
    return result


def left_unread(spark: SparkSession, result: DataFrame, ruled: Mapping[str, DataFrame]) -> list[str]:
    """The sources of the result of which Spark may not read every row."""
    analyzed = result._jdf.queryExecution().analyzed()
    used = analyzed.toString()
    # Each batch reads a table beside a stream again: rows that one batch does not read are not lost.
    names = [name for name in ruled if ruled[name].isStreaming == result.isStreaming and _mark(name) in used]
    if not names:
        return []
    session: Any = spark._jsparkSession
    optimized = session.sessionState().optimizer().execute(analyzed)
    seen = "\n".join(_conditions_that_see_all(optimized, result.isStreaming))
    return [name for name in names if _mark(name) not in seen]


def has_state(frame: DataFrame) -> bool:
    """Whether Spark keeps rows of a stream from batch to batch, so that there is a choice of the output mode."""
    return _has_state(frame._jdf.queryExecution().analyzed())


def _has_state(plan: Any) -> bool:
    name = plan.nodeName()
    if plan.isStreaming() and (name in AGGREGATES or "State" in name):
        return True
    return any(_has_state(plan.children().apply(index)) for index in range(plan.children().size()))


def _conditions_that_see_all(plan: Any, is_streaming: bool) -> Iterator[str]:
    """The conditions of filters, as far as every row of their inputs is read."""
    children = [plan.children().apply(index) for index in range(plan.children().size())]
    name = plan.nodeName()
    if is_streaming:
        # An operator with state reads all its input, so that the state does not depend on what the result needs.
        stops_early = name in LIMITS or (name == "Join" and not all(each.isStreaming() for each in children))
    else:
        stops_early = name not in READS_ALL
    if stops_early:
        return
    if name == "Filter":
        yield plan.condition().toString()
    for child in children:
        yield from _conditions_that_see_all(child, is_streaming)
