"""Registration of the data sources, in one session and in those that are made from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.spark.registry import DATA_SOURCES, register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_session_made_from_another_registers_too(spark: SparkSession) -> None:
    """The first session is the active one, as it is in a notebook whose user has registered before a pipeline runs."""
    from pyspark.sql import SparkSession

    register(spark)
    spark.createDataFrame([(1,)], "id int")
    active = SparkSession.getActiveSession()
    for _ in range(2):
        made = spark.newSession()
        register(made)
        register(made)
        for name in DATA_SOURCES:
            assert made._jsparkSession.sessionState().dataSourceManager().dataSourceExists(name)
    register(spark)
    assert active is not None
    now = SparkSession.getActiveSession()
    assert now is not None
    assert now._jsparkSession.equals(active._jsparkSession)
