"""Pipelines on Spark, through PySpark: sources and sinks of topics, of log directories and of databases.

    from barnabas.spark import register

    register(spark)
    spark.read.format("barnabas").option("kafka.bootstrap.servers", "localhost:9092").option("subscribe", "clicks")

Needs the extra `barnabas[spark]` and Java 17; no jar.
"""

from barnabas.spark.registry import register

__all__ = ["register"]
