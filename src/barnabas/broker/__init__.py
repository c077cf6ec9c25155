"""The broker: the meaning of each request, and the requests that wait."""
