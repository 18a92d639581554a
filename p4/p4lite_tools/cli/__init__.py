"""Verbs of `p4lite` that are tools, and p4lang's commands."""
