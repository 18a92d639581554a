"""What studies share: cells, which are runs in simulated time, and their measurements; the store of results; tables."""
