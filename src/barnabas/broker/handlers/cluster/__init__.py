"""The broker and the cluster: versions, features, log directories."""
