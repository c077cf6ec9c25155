"""One module an API.

Each has `handle(broker, exchange, request)`, which returns the response, or None if it answers by `exchange` itself, at
once or later. An error that a handler does not put into its response where it belongs closes the connection.
"""
