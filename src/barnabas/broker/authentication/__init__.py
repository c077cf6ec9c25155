"""Who the client of a connection is: TLS and SASL of the broker's listeners."""
