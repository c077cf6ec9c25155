"""Replication as machines without IO: one partition as its leader sees it."""
