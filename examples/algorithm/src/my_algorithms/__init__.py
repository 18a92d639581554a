"""Algorithms for mrclab."""
