"""Search over the records of a topic, in worker processes: on segment files that are local, else by fetching."""
