"""Quotas of bytes, requests, mutations and connections."""
