"""MRC host agents: the protocol core, its drivers and workloads."""
