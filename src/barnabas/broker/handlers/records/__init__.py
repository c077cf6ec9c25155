"""Produce, fetch and what else touches records."""
