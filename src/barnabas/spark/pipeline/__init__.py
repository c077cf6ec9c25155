"""Pipelines as files: a TOML file says what is read, what is made of it and where it goes."""
