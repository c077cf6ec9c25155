"""The broker: what each request means, and who waits for what."""
