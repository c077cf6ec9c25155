"""What a change of the cluster will look like, and whether it may be. Nothing is stored here."""
