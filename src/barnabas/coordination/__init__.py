"""The shared state of brokers: a small tree of nodes with ZooKeeper's contract, and Kafka's data in it."""
