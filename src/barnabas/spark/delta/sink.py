"""Rows of a query into a Delta table, exactly once, by the `deltalake` package, without a jar.

A batch is one commit of the table. The commit contains the query's id and the batch's number as a transaction
identifier of the Delta protocol (`txn`: appId, version). The sink omits a batch whose number the table has, and rejects
an older one. If two writers write one batch, the second fails to commit, because the table has the identifier by then.
Files of a killed writer belong to no commit: no reader sees them, and a vacuum removes them.

As many tasks as before compute the rows, and one task writes them as a stream: the Parquet writer takes millions of
rows per second.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import DataType, StructType

from barnabas.errors import InvalidConfig, InvalidRecord, KafkaStorageError, OutOfOrderSequenceNumber
from barnabas.spark.formats.types import nullable_columns
from barnabas.spark.option_checks import check_write_mode
from barnabas.spark.session import query_id_of
from barnabas.spark.workers import write_in_one_task

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable
    from pyspark.sql import DataFrame

RESULT: Final = pa.schema([pa.field("written", pa.int64())])
ORDER: Final = "_barnabas_order"


def deltalake_package() -> Any:
    try:
        import deltalake
    except ImportError as missing:
        raise InvalidConfig(
            f"Delta tables need {missing.name}, which is not installed: pip install 'barnabas[spark]'"
        ) from None
    return deltalake


class DeltaWriter:
    """Writes a batch from the one task that has its rows; made on the driver, run in a Python worker."""

    def __init__(
        self,
        *,
        path: str,
        keys: Sequence[str],
        updated: Sequence[str],
        batch_id: int,
        query_id: str,
        storage_options: Mapping[str, str],
    ) -> None:
        self._path = path
        self._keys = list(keys)
        self._updated = list(updated)
        self._batch_id = batch_id
        self._query_id = query_id
        self._storage_options = dict(storage_options)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        source = iter(batches)
        # The check and the write use one version of the table: a commit in between conflicts if it has the same
        # identifier.
        table = deltalake_package().DeltaTable(self._path, storage_options=self._storage_options)
        written = 0
        if self._is_new(table):
            written = self._write(table, source)
        else:
            # There is nothing to write, but the computation of the rows may have state to update.
            for _ in source:
                pass
        yield pa.record_batch([pa.array([written])], schema=RESULT)

    def _is_new(self, table: DeltaTable) -> bool:
        last_batch_id = table.transaction_version(self._query_id)
        if last_batch_id is None or last_batch_id < self._batch_id:
            return True
        if last_batch_id == self._batch_id:
            return False
        raise OutOfOrderSequenceNumber(
            f"Delta table {self._path}: batch {self._batch_id} of query {self._query_id} is refused, since batch "
            f"{last_batch_id} is in the table: another run of this query is ahead, or its checkpoint is an old copy"
        )

    def _write(self, table: DeltaTable, source: Iterator[pa.RecordBatch]) -> int:
        deltalake = deltalake_package()
        properties = deltalake.CommitProperties(
            app_transactions=[deltalake.Transaction(app_id=self._query_id, version=self._batch_id)]
        )
        first = next(source, None)
        if first is None:
            # The table's own schema has Arrow's types too.
            rows, count = pa.RecordBatchReader.from_batches(pa.schema(table.schema().to_arrow()), []), Count()
        else:
            count = Count()
            rows = pa.RecordBatchReader.from_batches(
                first.schema, count.over(itertools.chain((first,), source))
            )
        try:
            self.commit(table, rows, properties)
        except deltalake.exceptions.CommitFailedError as error:
            current = deltalake.DeltaTable(self._path, storage_options=self._storage_options)
            if not self._is_new(current):
                return 0
            raise KafkaStorageError(f"Delta table {self._path}: {error}") from None
        except deltalake.exceptions.DeltaError as error:
            raise InvalidRecord(f"Delta table {self._path}: {error}") from None
        return count.rows

    def commit(self, table: DeltaTable, rows: pa.RecordBatchReader, properties: CommitProperties) -> None:
        if not self._keys:
            deltalake_package().write_deltalake(table, rows, mode="append", commit_properties=properties)
            return
        same = " AND ".join(f"old.{_quoted(key)} = new.{_quoted(key)}" for key in self._keys)
        merge = table.merge(rows, same, source_alias="new", target_alias="old", commit_properties=properties)
        merge = merge.when_not_matched_insert_all()
        # Columns that the rows do not have keep what they are in rows that are replaced.
        updates = {_quoted(name): f"new.{_quoted(name)}" for name in self._updated if name not in self._keys}
        (merge.when_matched_update(updates) if updates else merge).execute()


class Count:
    """How many rows have gone by."""

    def __init__(self) -> None:
        self.rows = 0

    def over(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self.rows += batch.num_rows
            yield batch


class DeltaSink:
    """A Delta table as the sink of a query; `write_batch` is for foreachBatch, as is the sink itself.

    A table that is missing is created from the first batch's columns. An upsert replaces rows of the same keys; of
    several rows of one key in a batch the last one counts.
    """

    writer_class: type[DeltaWriter] = DeltaWriter

    def __init__(
        self,
        path: str,
        *,
        mode: Literal["append", "upsert"] = "append",
        keys: Sequence[str] = (),
        partition_by: Sequence[str] = (),
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        check_write_mode(mode, keys)
        self._path = path
        self._keys = tuple(keys)
        self._partition_by = tuple(partition_by)
        self._storage_options = dict(storage_options or {})
        self._prepared: tuple[StructType, StructType] | None = None

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        self.write_batch(frame, batch_id, query_id_of(frame))

    def write_batch(self, frame: DataFrame, batch_id: int, query_id: str) -> None:
        """Writes the rows of a batch unless they are in the table already."""
        if self._prepared is None or self._prepared[0] != frame.schema:
            self._prepared = (frame.schema, self._prepare(frame.schema))
        table = self._prepared[1]
        writer = self.writer_class(
            path=self._path,
            keys=self._keys,
            updated=frame.columns,
            batch_id=batch_id,
            query_id=query_id,
            storage_options=self._storage_options,
        )
        rows = last_of_keys(frame, self._keys) if self._keys else frame
        given = set(frame.columns)
        columns = [
            (F.col(_quoted(field.name)) if field.name in given else F.lit(None).cast(field.dataType)).alias(
                field.name
            )
            for field in table.fields
        ]
        write_in_one_task(rows.select(*columns), writer)

    def _prepare(self, schema: StructType) -> StructType:
        """Ensures that the table exists and accepts the rows; returns its columns."""
        for option, names in (("keys", self._keys), ("partition_by", self._partition_by)):
            missing = [name for name in names if name not in schema.fieldNames()]
            if missing:
                raise InvalidConfig(
                    f"{option}: the rows have no column {missing[0]!r}, but {', '.join(schema.fieldNames())}"
                )
        deltalake = deltalake_package()
        try:
            if not deltalake.DeltaTable.is_deltatable(self._path, self._storage_options):
                deltalake.DeltaTable.create(
                    self._path,
                    to_arrow_schema(nullable_columns(schema), timezone="UTC"),
                    mode="ignore",
                    partition_by=list(self._partition_by),
                    storage_options=self._storage_options,
                )
            table = deltalake.DeltaTable(self._path, storage_options=self._storage_options)
            columns = from_arrow_schema(pa.schema(table.schema().to_arrow()))
        except (deltalake.exceptions.DeltaError, OSError) as error:
            raise InvalidConfig(f"Delta table {self._path}: {error}") from None
        check_columns(self._path, columns, schema)
        return columns


def last_of_keys(frame: DataFrame, keys: Sequence[str]) -> DataFrame:
    """One row a key, the last: of rows that one task reads in their order, as those of a topic's partition."""
    numbered = frame.withColumn(ORDER, F.monotonically_increasing_id())
    last = F.max_by(F.struct(*(F.col(_quoted(name)) for name in frame.columns)), F.col(ORDER))
    return (
        numbered.groupBy(*(F.col(_quoted(key)) for key in keys)).agg(last.alias(ORDER)).select(f"{ORDER}.*")
    )


def check_columns(path: str, table: StructType, rows: StructType) -> None:
    """One clear error for rows that the table does not take."""
    types: dict[str, DataType] = {field.name: field.dataType for field in table.fields}
    for field in rows.fields:
        kind = types.get(field.name)
        if kind is None:
            raise InvalidConfig(
                f"Delta table {path}: it has no column {field.name!r}, which the rows have; it has {', '.join(types)}"
            )
        if kind.simpleString() != field.dataType.simpleString():
            raise InvalidConfig(
                f"Delta table {path}: column {field.name!r} is {kind.simpleString()} and the rows' is "
                f"{field.dataType.simpleString()}: cast it in a transform"
            )
    given = set(rows.fieldNames())
    for field in table.fields:
        if field.name not in given and not field.nullable:
            raise InvalidConfig(
                f"Delta table {path}: column {field.name!r} may not be null, and the rows have none"
            )


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
