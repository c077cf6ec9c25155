"""Real Apache Kafka beside us."""
