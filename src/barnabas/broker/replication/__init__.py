"""The broker's replicas: partitions and their roles."""
