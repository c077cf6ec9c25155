"""Waiting without blocking: timers, the purgatory, turns on the event loop, tasks."""
