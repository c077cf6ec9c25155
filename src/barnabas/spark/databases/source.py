"""The data source `barnabas-database`: a table or a query of PostgreSQL or SQLite, in batches or as a stream.

A stream reads the rows whose growing column is above the end of the last batch, up to a bound. The source determines
the bound first, and the checkpoint stores it: a repeated batch reads the same rows, as long as rows are only added. All
rows with the bound's own value belong to the batch, so that ties are never split.

A value may be assigned before a row with it is visible: a sequence of PostgreSQL continues while a transaction with a
lower number is still open. The source therefore uses a bound only when every transaction that had locked the table for
writing after the bound was read has ended; until then the stream stays behind. An INSERT locks its table before it
takes a number. Values that are assigned earlier (the start time of a transaction, a sequence with a cache, a clock of
the client) also need `settleSeconds`: the source then uses a bound only after this time. SQLite has one writer at a
time, which sees all earlier rows.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from barnabas.clock import SystemClock
from barnabas.errors import InvalidConfig
from barnabas.spark.databases.connection import connected, identifier, literal, rows_of
from barnabas.spark.databases.read import (
    ReadOptions,
    bounds,
    describe,
    parse_options,
    range_predicate,
    read_batches,
    read_statement,
    require_growing,
    require_splittable,
    select_list,
    split,
    split_predicates,
    value_literal,
)

if TYPE_CHECKING:
    from adbc_driver_manager.dbapi import Connection
    from pyspark.sql.types import StructType

    from barnabas.clock import Clock

NAME: Final = "barnabas-database"
WRITE_LOCKS: Final = "'RowExclusiveLock','ShareRowExclusiveLock','ExclusiveLock','AccessExclusiveLock'"
# Relations below this are the database's own.
FIRST_NORMAL_OID: Final = 16384
SETTLE_S_MAX: Final = 60.0
POLL_S: Final = 0.05

logger = logging.getLogger(__name__)


class DatabaseDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        options = parse_options(self.options)
        with connected(options.database) as connection:
            return describe(connection, options)

    def reader(self, schema: StructType) -> DataSourceReader:
        return DatabaseReader(parse_options(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return DatabaseStreamReader(parse_options(self.options), schema)


@dataclass(frozen=True, slots=True)
class Statement(InputPartition):
    sql: str


class DatabaseReader(DataSourceReader):
    """Reads all rows there are, in as many ranges of a column as there are to be tasks, each in its own snapshot."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        with connected(options.database) as connection:
            found = describe(connection, options)
            expressions = select_list(self._schema, found, options)
            begin = ""
            if options.growing_column is not None and options.starting_value is not None:
                kind = require_growing(options, found)
                after = value_literal(options.starting_value, kind, options.database)
                begin = range_predicate(options.growing_column, after, None)
            predicates = [""]
            if options.partitions > 1:
                column = require_splittable(options, found)
                low, high = bounds(connection, options, column, begin)
                if low is not None:
                    predicates = split_predicates(column, low, high, options.partitions)
        return [
            Statement(read_statement(self._schema, expressions, options, [begin, predicate]))
            for predicate in predicates
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Statement)
        return read_batches(self._options.database, partition.sql, self._schema)


class DatabaseStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are `{"column": …, "value": …}`: the growing column and its value, as text, up to which all was read."""

    def __init__(self, options: ReadOptions, schema: StructType, clock: Clock | None = None) -> None:
        self._options = options
        self._schema = schema
        self._clock: Clock = clock or SystemClock()
        with connected(options.database) as connection:
            found = describe(connection, options)
        self._kind = require_growing(options, found)
        self._expressions = select_list(schema, found, options)
        if options.starting_value is not None:
            value_literal(options.starting_value, self._kind, options.database)
        self._bound: str | None = None
        self._candidate: Candidate | None = None
        self._is_target_fixed = False

    def initialOffset(self) -> dict[str, Any]:
        return self._offset(self._options.starting_value)

    def getDefaultReadLimit(self) -> ReadLimit:
        rows = self._options.max_rows_per_trigger
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def prepareForTriggerAvailableNow(self) -> None:
        """Waits until all current rows can be read; does not wait for transactions of a minute and more."""
        deadline_ns = self._clock.monotonic_ns() + int((SETTLE_S_MAX + self._options.settle_s) * 1e9)
        with connected(self._options.database) as connection:
            self._observe(connection)
        while self._candidate is not None:
            if self._clock.monotonic_ns() >= deadline_ns:
                logger.warning(
                    "rows of %s up to %s are left for the next run: a transaction that writes there is still open",
                    self._options.relation,
                    self._candidate.value,
                )
                break
            time.sleep(POLL_S)
            with connected(self._options.database) as connection:
                self._promote(connection)
        self._is_target_fixed = True

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        after = self._value_of(start)
        with connected(self._options.database) as connection:
            if not self._is_target_fixed:
                self._promote(connection)
                self._observe(connection)
            if self._bound is None:
                return start
            rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
            end = self._end(connection, after, self._bound, rows_max)
        return start if end is None else self._offset(end)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        options = self._options
        assert options.growing_column is not None
        after, up_to = self._value_of(start), self._value_of(end)
        if up_to is None or after == up_to:
            return []
        ranges: list[tuple[str | None, str]] = [(after, up_to)]
        if (
            options.partitions > 1
            and after is not None
            and options.partition_column == options.growing_column
        ):
            try:
                ranges = [
                    (str(low), str(high)) for low, high in split(int(after), int(up_to), options.partitions)
                ]
            except ValueError:
                raise InvalidConfig(
                    f"option partitions: growingColumn {options.growing_column!r} must be a whole number"
                ) from None
        return [
            Statement(
                read_statement(
                    self._schema,
                    self._expressions,
                    options,
                    [range_predicate(options.growing_column, self._sql(low), self._sql(high))],
                )
            )
            for low, high in ranges
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Statement)
        return read_batches(self._options.database, partition.sql, self._schema)

    def _offset(self, value: str | None) -> dict[str, Any]:
        return {"column": self._options.growing_column, "value": value}

    def _value_of(self, offset: Mapping[str, Any]) -> str | None:
        if offset.get("column") != self._options.growing_column:
            raise InvalidConfig(
                f"option growingColumn: the checkpoint goes by {offset.get('column')!r}, not by "
                f"{self._options.growing_column!r}; begin with a new checkpoint"
            )
        value = offset.get("value")
        return None if value is None else str(value)

    def _sql(self, value: str | None) -> str | None:
        return None if value is None else value_literal(value, self._kind, self._options.database)

    def _text(self, expression: str) -> str:
        return f"CAST({expression} AS TEXT)"

    def _end(self, connection: Connection, after: str | None, bound: str, rows_max: int | None) -> str | None:
        """Where a batch ends that begins after a value; nowhere if there is nothing to read."""
        options = self._options
        assert options.growing_column is not None
        name = identifier(options.growing_column)
        where = range_predicate(options.growing_column, self._sql(after), self._sql(bound))
        if rows_max is not None:
            found = rows_of(
                connection,
                # Without an alias the text would have the column's name, and the order would be that of texts.
                f"SELECT {self._text(name)} AS barnabas_end FROM {options.relation} WHERE {where} "
                f"ORDER BY {name} LIMIT 1 OFFSET {rows_max - 1}",
            )
            if found:
                return str(found[0][0])
        [(last,)] = rows_of(
            connection, f"SELECT {self._text(f'max({name})')} FROM {options.relation} WHERE {where}"
        )
        return None if last is None else str(last)

    def _observe(self, connection: Connection) -> None:
        """Finds the end of the table and then the transactions that may still add rows below it."""
        if self._candidate is not None:
            return
        options = self._options
        assert options.growing_column is not None
        name = identifier(options.growing_column)
        where = range_predicate(options.growing_column, self._sql(self._bound), None)
        [(last,)] = rows_of(
            connection, f"SELECT {self._text(f'max({name})')} FROM {options.relation} WHERE {where}"
        )
        if last is None:
            return
        self._candidate = Candidate(
            value=str(last), writers=self._writers(connection), seen_ns=self._clock.monotonic_ns()
        )
        self._settle(self._candidate.writers)

    def _promote(self, connection: Connection) -> None:
        if self._candidate is not None:
            self._settle(self._writers(connection))

    def _settle(self, writers: frozenset[str]) -> None:
        candidate = self._candidate
        assert candidate is not None
        age_s = (self._clock.monotonic_ns() - candidate.seen_ns) / 1e9
        if candidate.writers & writers or age_s < self._options.settle_s:
            return
        self._bound, self._candidate = candidate.value, None

    def _writers(self, connection: Connection) -> frozenset[str]:
        """The transactions that have locked the table or a part of it for writing; of any table for a query."""
        options = self._options
        if options.database.kind == "sqlite":
            return frozenset()
        condition = f"relation >= {FIRST_NORMAL_OID}"
        if options.table is not None:
            table = f"to_regclass({literal(options.table.quoted)})"
            condition += (
                f" AND (relation = {table} OR relation IN (SELECT relid FROM pg_partition_tree({table})) "
                f"OR (SELECT relkind FROM pg_class WHERE oid = {table}) NOT IN ('r', 'p'))"
            )
        found = rows_of(
            connection,
            "SELECT DISTINCT virtualtransaction FROM pg_locks WHERE locktype = 'relation' "
            "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
            f"AND {condition} AND granted AND mode IN ({WRITE_LOCKS})",
        )
        return frozenset(str(writer) for (writer,) in found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """How far the table went at a time, and the transactions that were writing to it right after."""

    value: str
    writers: frozenset[str]
    seen_ns: int
