"""The store contract, which is ZooKeeper's, and its engines."""
