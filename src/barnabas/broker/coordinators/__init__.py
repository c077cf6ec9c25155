"""The runtimes of the group and transaction coordinators."""
