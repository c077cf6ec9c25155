"""Record values as columns and back: JSON, Avro, text and bytes."""

from barnabas.spark.formats.columns import FormatSpec, decode, encode

__all__ = ["FormatSpec", "decode", "encode"]
