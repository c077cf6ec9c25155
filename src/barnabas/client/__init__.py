"""Producer, consumer and admin: one core on an event loop, blocking or for asyncio."""
