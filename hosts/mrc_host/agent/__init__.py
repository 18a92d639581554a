"""The host agent: one host or several in a process, each in its own network namespace."""
