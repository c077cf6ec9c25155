"""The writes to the store that any broker may do."""
