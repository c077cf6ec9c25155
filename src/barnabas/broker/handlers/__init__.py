"""One module an API, by family.

Each has `handle(broker, exchange, request)`, which returns the response or the parked request (see
`requests.exchange`), and declares it as its `HANDLER`. An error that a handler does not put into its response closes
the connection.
"""
