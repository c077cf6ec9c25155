"""Partition logs on disk, in Apache Kafka's formats: segments and their indexes, checkpoints, recovery, cleaning."""
