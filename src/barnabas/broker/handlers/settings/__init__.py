"""Settings, quotas and client metrics."""
