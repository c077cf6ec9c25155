"""The broker's replicas: partitions, and who owns them."""
