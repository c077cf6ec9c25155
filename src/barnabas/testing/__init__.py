"""Brokers and clusters for tests: separate processes on free ports, removed afterwards with their data."""

from barnabas.testing.broker import Broker, BrokerFailed
from barnabas.testing.cluster import Cluster
from barnabas.testing.ports import free_port
from barnabas.testing.zookeeper import ZooKeeper, ZooKeeperUnavailable

__all__ = ["Broker", "BrokerFailed", "Cluster", "ZooKeeper", "ZooKeeperUnavailable", "free_port"]
