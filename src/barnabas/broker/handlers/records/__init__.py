"""Produce, Fetch and the other APIs about records."""
