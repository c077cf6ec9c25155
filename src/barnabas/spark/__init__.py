"""Pipelines on Spark, through PySpark: sources and sinks of topics, of log directories and of databases.

Needs the extra `barnabas[spark]` and Java 17; no jar.
"""
