"""The context of a handler: the exchange with a client, its deadline, sessions, routes."""
