"""The HTTP API of the console: one module per subject, and the table of its routes."""
