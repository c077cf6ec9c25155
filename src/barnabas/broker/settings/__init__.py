"""Resources that have settings beside topics and brokers: groups, loggers."""
