"""The data source `barnabas-delta`: a version of a Delta table, read by the `deltalake` package in parallel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from barnabas.errors import InvalidConfig
from barnabas.spark.delta.sink import deltalake_package
from barnabas.spark.formats.types import nullable_columns

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql.types import StructType

STORAGE_PREFIX: Final = "storage."
ROWS_PER_BATCH: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaOptions:
    path: str
    version: int | None
    storage_options: Mapping[str, str]

    def open(self) -> DeltaTable:
        deltalake = deltalake_package()
        try:
            table: DeltaTable = deltalake.DeltaTable(
                self.path, version=self.version, storage_options=dict(self.storage_options)
            )
        except (deltalake.exceptions.DeltaError, OSError) as error:
            raise InvalidConfig(f"option path: {self.path} is not a Delta table: {error}") from None
        return table


def parse_options(options: Mapping[str, str]) -> DeltaOptions:
    storage = {
        name.removeprefix(STORAGE_PREFIX): value
        for name, value in options.items()
        if name.startswith(STORAGE_PREFIX)
    }
    for name in options:
        if not name.startswith(STORAGE_PREFIX) and name.lower() not in ("path", "version"):
            raise InvalidConfig(
                f"option {name}: there is no such option; there are path, version and those of the storage, storage.…"
            )
    given = {name.lower(): value for name, value in options.items()}
    if "path" not in given:
        raise InvalidConfig("option path is missing: where the Delta table lies")
    version = given.get("version")
    if version is not None and not (version.isascii() and version.isdigit()):
        raise InvalidConfig(f"option version: {version!r} is not a number")
    return DeltaOptions(
        path=given["path"], version=None if version is None else int(version), storage_options=storage
    )


def _columns(table: DeltaTable) -> StructType:
    return nullable_columns(from_arrow_schema(pa.schema(table.schema().to_arrow())))


class DeltaDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "barnabas-delta"

    def schema(self) -> StructType:
        return _columns(parse_options(self.options).open())

    def reader(self, schema: StructType) -> DataSourceReader:
        return DeltaReader(parse_options(self.options), schema)


@dataclass(frozen=True, slots=True)
class DataFile(InputPartition):
    """A file of the table, at the version that the query was planned for."""

    version: int
    path: str


class DeltaReader(DataSourceReader):
    def __init__(self, options: DeltaOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        table = self._options.open()
        known = _columns(table).fieldNames()
        for name in self._schema.fieldNames():
            if name not in known:
                raise InvalidConfig(f"schema: there is no column {name!r}; there are {', '.join(known)}")
        return [DataFile(table.version(), fragment.path) for fragment in self._fragments(table)]

    def _fragments(self, table: DeltaTable) -> list[Any]:
        try:
            return list(table.to_pyarrow_dataset().get_fragments())
        except deltalake_package().exceptions.DeltaProtocolError as error:
            raise InvalidConfig(f"option path: {self._options.path}: {error}") from None

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, DataFile)
        options = DeltaOptions(
            path=self._options.path,
            version=partition.version,
            storage_options=self._options.storage_options,
        )
        dataset = options.open().to_pyarrow_dataset()
        schema = to_arrow_schema(self._schema, timezone="UTC")
        for fragment in dataset.get_fragments():
            if fragment.path != partition.path:
                continue
            # Columns that the table is partitioned by are not in the file: the fragment knows their values.
            for batch in fragment.to_batches(
                schema=dataset.schema, columns=schema.names, batch_size=ROWS_PER_BATCH
            ):
                yield pa.RecordBatch.from_arrays(
                    [batch.column(field.name).cast(field.type) for field in schema], schema=schema
                )
