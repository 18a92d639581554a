"""The host agent: one process per host, in its network namespace."""
