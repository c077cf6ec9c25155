"""Records with schemas, in the wire format of Confluent's Schema Registry: Avro, JSON Schema and Protobuf."""
