"""Programs that run: loading a compiled program, and the tables and state of one switch by name."""
