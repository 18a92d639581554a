"""Benchmarks: `make bench` runs them all; each prints one table with ratios measured in that run."""
