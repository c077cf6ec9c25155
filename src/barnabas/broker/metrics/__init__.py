"""The broker's own metrics, collected when they are read."""
