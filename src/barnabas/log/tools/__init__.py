"""What reads a log directory without a broker: dump, verify, recover."""
