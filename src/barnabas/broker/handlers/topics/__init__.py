"""Topics, partitions, metadata, reassignments, elections."""
