"""The wire protocol without IO: message types, codecs, framing, the API table."""
