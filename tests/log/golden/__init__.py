"""Log directories that Apache Kafka has written, held against what Kafka itself says of them."""
