"""What any broker may write to the store."""
