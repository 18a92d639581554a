"""Whole clusters: `mrc_fluid` run from a file to a report, and held against packets (`calibrate`)"""
