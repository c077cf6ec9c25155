"""Records and how they are packed: batches v2, message sets v0 and v1, compression, conversion, columns."""
