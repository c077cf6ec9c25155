"""Pipelines as files: a TOML file names the sources, the transforms and the sink."""
