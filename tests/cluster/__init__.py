"""Clusters of broker processes on a real ZooKeeper."""
