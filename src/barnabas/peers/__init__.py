"""Links to other brokers: which versions they are spoken to in, and the connections."""
