"""Settings: Kafka's names, types, defaults and bounds, and the files they are written in."""
