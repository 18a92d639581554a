"""Common parts of studies: cells (runs in simulated time) and their measurements; the store of results; tables."""
