"""What brokers agree on: a small tree of nodes with ZooKeeper's contract, and what Kafka keeps in it."""
