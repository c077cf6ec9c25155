"""What a handler is given: the exchange with a client, its deadline, sessions, routes."""
