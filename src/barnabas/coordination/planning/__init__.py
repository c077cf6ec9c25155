"""Plans of changes of the cluster, and their checks. Nothing is stored here."""
