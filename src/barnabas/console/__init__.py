"""The web console: an HTTP API, event streams, search over logs, and pages. It needs the extra `barnabas[console]`."""
