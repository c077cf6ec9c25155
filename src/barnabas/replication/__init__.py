"""Replication as machines without IO: a partition as its leader sees it, and the fetcher of a follower."""
