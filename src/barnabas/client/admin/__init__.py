"""The admin clients, blocking and for asyncio."""
