"""Whole clusters: `mrc_scale` run from a file to a report, and held against packets (`calibrate`)"""
