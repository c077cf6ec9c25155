"""A partition's state of its producers: sequences, open transactions, snapshots."""
