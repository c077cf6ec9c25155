"""Tools that read a log directory without a broker: dump, verify, recover."""
