"""Data about a cluster for the command line and other front ends: values from the admin client, without printing."""
