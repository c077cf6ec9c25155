"""Work beside requests: following the metadata image, maintenance, automatic topics."""
