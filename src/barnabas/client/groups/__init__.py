"""Membership in a consumer group, by both protocols, and its offsets."""
