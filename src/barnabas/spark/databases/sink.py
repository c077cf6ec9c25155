"""Rows of a query into a table of PostgreSQL or SQLite, exactly once.

A batch is one transaction of the database, in one task. The transaction first writes the batch's number to
`barnabas_batches`, so that this row is locked until the transaction ends. A second writer of the same batch (a
restarted driver, a repeated task, a driver that was presumed dead) waits for the lock, then sees the number and omits
the rows; an older number is rejected. If a writer is killed, the database rolls its transaction back.

    barnabas_batches: query_id text, target text, batch_id bigint, applied_at text, primary key (query_id, target)

Rows stream as Arrow into a temporary table, and from there into the target by one INSERT, which may be an upsert.
PostgreSQL takes more than a million rows per second in this way from one connection, so more connections would gain
nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow as pa

from barnabas.errors import InvalidConfig, KafkaError, OutOfOrderSequenceNumber
from barnabas.spark.databases.connection import (
    BUSY_TIMEOUT_S,
    Database,
    TableName,
    connected,
    cursor_of,
    execute,
    identifier,
    literal,
    parse_table,
    parse_url,
    rows_of,
)
from barnabas.spark.databases.types import TableColumn, check_columns, create_statement, handed_over
from barnabas.spark.option_checks import check_write_mode
from barnabas.spark.session import query_id_of
from barnabas.spark.workers import write_in_one_task

if TYPE_CHECKING:
    from adbc_driver_manager.dbapi import Connection
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

MARKERS: Final = "barnabas_batches"
STAGED: Final = "barnabas_staged"
MARKER_COLUMNS: Final = (
    "query_id text, target text, batch_id bigint, applied_at text, PRIMARY KEY (query_id, target)"
)
NO_BATCH: Final = -1
CREATE_ATTEMPTS_MAX: Final = 3
RESULT: Final = pa.schema([pa.field("written", pa.int64())])


def table_columns(connection: Connection, database: Database, table: TableName) -> list[TableColumn]:
    """The columns of a table; none if there is no such table."""
    if database.kind == "sqlite":
        schema = f", {literal(table.schema)}" if table.schema else ""
        rows = rows_of(
            connection,
            "SELECT name, type, \"notnull\" = 0 OR dflt_value IS NOT NULL OR (pk = 1 AND upper(type) = 'INTEGER') "
            f"FROM pragma_table_info({literal(table.name)}{schema})",
        )
    else:
        rows = rows_of(
            connection,
            "SELECT a.attname::text, format_type(a.atttypid, a.atttypmod)::text, "
            "NOT a.attnotnull OR a.atthasdef OR a.attidentity <> '' "
            f"FROM pg_attribute a WHERE a.attrelid = to_regclass({literal(table.quoted)}) "
            "AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attnum",
        )
    return [TableColumn(name=name, type=kind, optional=bool(optional)) for name, kind, optional in rows]


class BatchWriter:
    """Writes a batch from the one task that has its rows; made on the driver, run in a Python worker."""

    def __init__(
        self,
        *,
        database: Database,
        table: TableName,
        keys: Sequence[str],
        columns: Sequence[str],
        types: Sequence[str],
        batch_id: int,
        query_id: str,
        lock_timeout_s: int,
    ) -> None:
        self._database = database
        self._table = table
        self._keys = list(keys)
        self._columns = list(columns)
        self._types = list(types)
        self._batch_id = batch_id
        self._query_id = query_id
        self._lock_timeout_s = lock_timeout_s

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        source = iter(batches)
        with connected(self._database, lock_timeout_s=self._lock_timeout_s) as connection:
            written = 0
            if self._mark(connection):
                written = self._stage(connection, source)
                if written:
                    execute(connection, self._insert_statement())
                self.commit(connection)
            else:
                # There is nothing to write, but the computation of the rows may have state to update.
                for _ in source:
                    pass
        yield pa.record_batch([pa.array([written])], schema=RESULT)

    def commit(self, connection: Connection) -> None:
        connection.commit()

    def _mark(self, connection: Connection) -> bool:
        """Locks the query's marker and sets it to this batch; false if the batch is in the table already."""
        markers = self._table.sibling(MARKERS).quoted
        target = literal(str(self._table))
        mine = f"query_id = {literal(self._query_id)} AND target = {target}"
        execute(
            connection,
            f"INSERT INTO {markers} (query_id, target, batch_id) "
            f"VALUES ({literal(self._query_id)}, {target}, {NO_BATCH}) ON CONFLICT DO NOTHING",
        )
        lock = " FOR UPDATE" if self._database.kind == "postgresql" else ""
        [(last_batch_id,)] = rows_of(connection, f"SELECT batch_id FROM {markers} WHERE {mine}{lock}")
        if last_batch_id == self._batch_id:
            return False
        if last_batch_id > self._batch_id:
            raise OutOfOrderSequenceNumber(
                f"table {self._table}: batch {self._batch_id} of query {self._query_id} is refused, since batch "
                f"{last_batch_id} is in the table: another run of this query is ahead, or its checkpoint is an old copy"
            )
        execute(
            connection,
            f"UPDATE {markers} SET batch_id = {self._batch_id}, applied_at = CURRENT_TIMESTAMP WHERE {mine}",
        )
        return True

    def _stage(self, connection: Connection, source: Iterator[pa.RecordBatch]) -> int:
        first = next(source, None)
        if first is None:
            return 0
        count = 0

        def counted() -> Iterator[pa.RecordBatch]:
            nonlocal count
            for batch in itertools.chain((first,), source):
                count += batch.num_rows
                yield batch

        reader = pa.RecordBatchReader.from_batches(first.schema, counted())
        with cursor_of(connection) as cursor:
            cursor.adbc_ingest(STAGED, reader, mode="create", temporary=True)
        return count

    def _insert_statement(self) -> str:
        """From the temporary table to the real one. Of several rows of one key in a batch the last one counts."""
        names = [identifier(name) for name in self._columns]
        keys = ", ".join(identifier(name) for name in self._keys)
        values = ", ".join(
            f"CAST({name} AS {kind}) AS {name}" if kind else name
            for name, kind in zip(names, self._types, strict=True)
        )
        staged = identifier(STAGED)
        if not keys:
            selected = f"SELECT {values} FROM {staged}"
        elif self._database.kind == "sqlite":
            selected = f"SELECT {values} FROM {staged} WHERE true ORDER BY rowid"
        else:
            selected = f"SELECT DISTINCT ON ({keys}) {values} FROM {staged} ORDER BY {keys}, ctid DESC"
        statement = f"INSERT INTO {self._table.quoted} ({', '.join(names)}) {selected}"
        if not keys:
            return statement
        others = [identifier(name) for name in self._columns if name not in self._keys]
        changes = ", ".join(f"{name} = EXCLUDED.{name}" for name in others)
        return f"{statement} ON CONFLICT ({keys}) DO " + (f"UPDATE SET {changes}" if changes else "NOTHING")


class DatabaseSink:
    """A table as the sink of a query; `write_batch` is for foreachBatch, as is the sink itself.

    A table that is missing is created from the first batch's columns. `keys` of an upsert must have a unique index.
    """

    writer_class: type[BatchWriter] = BatchWriter

    def __init__(
        self,
        url: str,
        table: str,
        *,
        mode: Literal["append", "upsert"] = "append",
        keys: Sequence[str] = (),
        lock_timeout_s: int = BUSY_TIMEOUT_S,
    ) -> None:
        self._database = parse_url(url)
        self._table = parse_table(table)
        check_write_mode(mode, keys)
        self._keys = tuple(keys)
        self._lock_timeout_s = lock_timeout_s
        self._prepared: tuple[StructType, list[str]] | None = None

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        self.write_batch(frame, batch_id, query_id_of(frame))

    def write_batch(self, frame: DataFrame, batch_id: int, query_id: str) -> None:
        """Writes the rows of a batch unless they are in the table already."""
        schema = frame.schema
        if self._prepared is None or self._prepared[0] != schema:
            self._prepared = (schema, self._prepare(schema))
        writer = self.writer_class(
            database=self._database,
            table=self._table,
            keys=self._keys,
            columns=schema.fieldNames(),
            types=self._prepared[1],
            batch_id=batch_id,
            query_id=query_id,
            lock_timeout_s=self._lock_timeout_s,
        )
        columns = [
            handed_over(frame[identifier_of_spark(field.name)], field.dataType, self._database.kind).alias(
                field.name
            )
            for field in schema.fields
        ]
        write_in_one_task(frame.select(*columns), writer)

    def _prepare(self, schema: StructType) -> list[str]:
        """Ensures that the tables exist and accept the rows; returns the type that each column is to be cast to."""
        database, table = self._database, self._table
        missing = [key for key in self._keys if key not in schema.fieldNames()]
        if missing:
            raise InvalidConfig(
                f"keys: the rows have no column {missing[0]!r}, but {', '.join(schema.fieldNames())}"
            )
        markers = table.sibling(MARKERS)
        wanted = (
            (markers, f"CREATE TABLE IF NOT EXISTS {markers.quoted} ({MARKER_COLUMNS})"),
            (table, create_statement(table, schema, self._keys, database.kind)),
        )
        with connected(database, lock_timeout_s=self._lock_timeout_s) as connection:
            # A role that may only insert is not even allowed to create what exists.
            statements = [
                statement for name, statement in wanted if not table_columns(connection, database, name)
            ]
        if statements:
            self._create(statements)
        with connected(database, lock_timeout_s=self._lock_timeout_s) as connection:
            found = table_columns(connection, database, table)
            check_columns(table, found, schema, database.kind)
            self._check_keys(connection)
        if database.kind == "sqlite":
            return [""] * len(schema.fields)
        types = {column.name: column.type for column in found}
        return [types[name] for name in schema.fieldNames()]

    def _create(self, statements: Sequence[str]) -> None:
        for attempt in range(CREATE_ATTEMPTS_MAX):
            try:
                with connected(self._database, lock_timeout_s=self._lock_timeout_s) as connection:
                    for statement in statements:
                        execute(connection, statement)
                    connection.commit()
            except KafkaError as error:
                # Two that create the same table at once: PostgreSQL lets one of them fail, IF NOT EXISTS or not.
                raced = "already exists" in str(error) or "unique constraint" in str(error)
                if not raced or attempt == CREATE_ATTEMPTS_MAX - 1:
                    raise
            else:
                return

    def _check_keys(self, connection: Connection) -> None:
        if not self._keys:
            return
        keys = set(self._keys)
        for columns in unique_columns(connection, self._database, self._table):
            if columns == keys:
                return
        raise InvalidConfig(
            f"keys: table {self._table} has no unique index on {', '.join(self._keys)}; create one, or name its columns"
        )


def unique_columns(connection: Connection, database: Database, table: TableName) -> list[set[str]]:
    """The columns of each index of a table that an upsert may go by."""
    if database.kind == "sqlite":
        name = literal(table.name)
        rows: list[tuple[Any, ...]] = rows_of(
            connection,
            f"SELECT l.name, i.name FROM pragma_index_list({name}) l, pragma_index_info(l.name) i "
            'WHERE l."unique" AND NOT l.partial '
            f"UNION ALL SELECT '', name FROM pragma_table_info({name}) WHERE pk > 0",
        )
    else:
        rows = rows_of(
            connection,
            "SELECT i.indexrelid::regclass::text, a.attname::text FROM pg_index i JOIN pg_attribute a "
            "ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1]) "
            f"WHERE i.indrelid = to_regclass({literal(table.quoted)}) AND i.indisunique AND i.indpred IS NULL "
            "AND i.indexprs IS NULL AND i.indisvalid",
        )
    found: dict[str, set[str]] = {}
    for index, column in rows:
        found.setdefault(index, set()).add(column)
    return list(found.values())


def identifier_of_spark(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
