"""Connections to brokers, the metadata of the cluster, and coordinators."""
