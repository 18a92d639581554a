"""MRC host agents: the protocol core, its drivers and workloads."""

from mrc_host import native as native  # before any module that may be there compiled
