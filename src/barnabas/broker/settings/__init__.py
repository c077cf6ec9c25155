"""Resources with settings other than topics and brokers: groups, loggers."""
