"""Who a client is and what it may do: TLS, SASL mechanisms, principals, ACLs. Without sockets and without the store."""
