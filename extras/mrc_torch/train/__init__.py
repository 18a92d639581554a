"""Ranks of PyTorch jobs in a lab: one process in each host, which `mrclab train` and `mrclab perf --backend` start.

`python -m mrc_torch.train CONFIGURATION` is one rank; `orders` says how it is spoken to.
"""
