"""The site: pages that are generated from the code, and the hooks with which mkdocs adds them to those of `docs/`."""
