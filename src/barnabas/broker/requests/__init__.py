"""Requests: the exchange with a client, the routes to handlers, deadlines, fetch sessions."""
