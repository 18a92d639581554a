"""Congestion control: one controller per destination (MRC) or per queue pair (RoCE)."""
