"""Links to other brokers: nodes, connections, and the versions of requests."""
