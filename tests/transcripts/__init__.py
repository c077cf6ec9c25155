"""What a controller of Apache Kafka sends and writes, and the same of ours."""
