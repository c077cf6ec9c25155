"""The data source `barnabas`: topics, read and written with the options of Spark's own kafka format."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType


class TopicDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "barnabas"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from barnabas.spark.sink import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from barnabas.spark.sink import stream_writer

        return stream_writer(self.options, schema, overwrite)
