"""Compaction: which records are superseded, and segments written without them."""
