"""Log directories as a source, without a broker."""
