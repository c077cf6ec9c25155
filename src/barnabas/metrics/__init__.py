"""Counters, gauges and histograms, and how Prometheus reads them."""
