"""Builds a broker by parts and runs it. The order of starting and stopping is in `server.py`."""
