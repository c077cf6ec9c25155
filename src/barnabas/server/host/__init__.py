"""Several brokers on one host, `barnabas start --brokers N`. A broker that is alone loads nothing of this."""
