"""Graphs of operations on the fluid model: traces and generated training on clusters, or on the fabric of a lab."""
