"""Experiments, workloads and comparisons on a session, from beginning to verdict."""
