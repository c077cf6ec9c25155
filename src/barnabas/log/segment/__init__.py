"""Segments: the file of batches, its offset, time and transaction indexes, and their recovery."""
