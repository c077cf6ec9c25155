"""Topics as a source and as a sink, through the client."""
