"""Sweeps: many runs of one experiment or comparison, planned and checked before any begins, on one core or a cluster"""
