"""Shared parts of the commands: arguments, connections, tables, progress, exit codes."""
