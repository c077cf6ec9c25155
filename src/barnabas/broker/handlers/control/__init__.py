"""Requests that only brokers send: those of the controller to this broker, and those of brokers to the controller."""
