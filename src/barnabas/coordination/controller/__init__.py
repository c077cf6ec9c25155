"""What the controller decides: topics, placement, elections, adoption."""
