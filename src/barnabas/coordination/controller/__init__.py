"""The controller: the work that only the elected broker does."""
