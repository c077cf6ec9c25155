"""The controller: what only the elected broker does."""
