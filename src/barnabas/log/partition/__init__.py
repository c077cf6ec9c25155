"""The log of one partition: append, read, truncate, retain, and recovery at opening."""
