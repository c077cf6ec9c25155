"""What a partition remembers of its producers: sequences, open transactions, snapshots."""
