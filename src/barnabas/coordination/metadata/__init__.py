"""The metadata image, and how its nodes are named and encoded in the store."""
