"""Raw batches of partitions, for programs that distribute the reading themselves."""
