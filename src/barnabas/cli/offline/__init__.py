"""Commands on files and bytes, without a cluster."""
